#!/bin/bash
# Starts PostgreSQL under the contract of the official image, as far as the
# tests rely on it: POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB,
# POSTGRES_INITDB_ARGS, POSTGRES_HOST_AUTH_METHOD, their _FILE forms,
# /docker-entrypoint-initdb.d, and "postgres -c name=value" as the command.
set -euo pipefail

die() { echo "entrypoint: $*" >&2; exit 1; }

# from_file NAME: takes NAME from the file that NAME_FILE names.
from_file() {
    local file_name="${1}_FILE"
    if [ -n "${!file_name:-}" ]; then
        [ -z "${!1:-}" ] || die "both $1 and $file_name are set"
        export "$1"="$(<"${!file_name}")"
    fi
}

[ "${1:0:1}" != "-" ] || set -- postgres "$@"
[ "$1" = postgres ] || exec "$@"

# The server refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chown -R postgres:postgres "$PGDATA" /run/postgresql
    chmod 0700 "$PGDATA"
    exec setpriv --reuid=postgres --regid=postgres --init-groups -- "$0" "$@"
fi

initialise() {
    from_file POSTGRES_USER; from_file POSTGRES_PASSWORD
    from_file POSTGRES_DB; from_file POSTGRES_INITDB_ARGS
    local user="${POSTGRES_USER:-postgres}" password="${POSTGRES_PASSWORD:-}"
    local database="${POSTGRES_DB:-$user}" method="${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}"
    [ -n "$password" ] || [ "$method" = trust ] || die "POSTGRES_PASSWORD is empty"

    local password_file=()
    if [ -n "$password" ]; then
        printf '%s\n' "$password" > /tmp/password
        password_file=(--pwfile=/tmp/password)
    fi
    # POSTGRES_INITDB_ARGS is a list of words on purpose.
    # shellcheck disable=SC2086
    initdb --username="$user" "${password_file[@]}" --auth-local=trust \
        --auth-host=trust ${POSTGRES_INITDB_ARGS:-} "$PGDATA"
    rm -f /tmp/password
    printf '\nhost all all all %s\n' "$method" >> "$PGDATA/pg_hba.conf"
    printf "\nlisten_addresses = '*'\n" >> "$PGDATA/postgresql.conf"

    # While it is being set up the server listens on its socket only, so that a
    # client on the network cannot take it for ready.
    shift
    pg_ctl -D "$PGDATA" -o "$(printf '%q ' "$@" -c listen_addresses=)" -w start
    local psql=(psql -v ON_ERROR_STOP=1 --no-password --no-psqlrc --username "$user")
    if [ "$database" != postgres ]; then
        "${psql[@]}" --dbname postgres --set db="$database" <<< 'CREATE DATABASE :"db";'
    fi
    local script
    for script in /docker-entrypoint-initdb.d/*; do
        case "$script" in
        *.sh)
            echo "entrypoint: $script"
            # shellcheck disable=SC1090
            if [ -x "$script" ]; then "$script"; else . "$script"; fi ;;
        *.sql)
            echo "entrypoint: $script"
            "${psql[@]}" --dbname "$database" --file "$script" ;;
        *.sql.gz)
            echo "entrypoint: $script"
            gunzip -c "$script" | "${psql[@]}" --dbname "$database" ;;
        esac
    done
    pg_ctl -D "$PGDATA" -m fast -w stop
}

[ -s "$PGDATA/PG_VERSION" ] || initialise "$@"
unset POSTGRES_PASSWORD
exec "$@"
