#!/bin/bash
# Starts MariaDB or MySQL, whichever the image has, under the contract of the official
# images, as far as the tests rely on it: {MARIADB,MYSQL}_{ROOT_PASSWORD,ROOT_HOST,
# DATABASE,USER,PASSWORD,ALLOW_EMPTY_ROOT_PASSWORD}, their _FILE forms,
# /docker-entrypoint-initdb.d, and "mariadbd --option" or "mysqld --option" as the command.
set -euo pipefail

if command -v mariadbd > /dev/null; then server=mariadbd client=mariadb; else server=mysqld client=mysql; fi

data=/var/lib/mysql
socket=/run/mysqld/mysqld.sock

die() { echo "entrypoint: $*" >&2; exit 1; }

# setting NAME: the value of MARIADB_NAME, MYSQL_NAME or a file named by either.
setting() {
    local prefix name file_name
    for prefix in MARIADB MYSQL; do
        name="${prefix}_$1"; file_name="${name}_FILE"
        if [ -n "${!name:-}" ]; then printf '%s' "${!name}"; return; fi
        if [ -n "${!file_name:-}" ]; then printf '%s' "$(<"${!file_name}")"; return; fi
    done
}

# text VALUE: VALUE as an SQL string literal; name VALUE: as an identifier.
text() { local v="${1//\\/\\\\}"; printf "'%s'" "${v//\'/\'\'}"; }
name() { printf '`%s`' "${1//\`/\`\`}"; }

[ "${1:0:1}" != "-" ] || set -- "$server" "$@"
case "$1" in
mariadbd | mysqld) shift; set -- "$server" "$@" ;;
*) exec "$@" ;;
esac

if [ "$(id -u)" = 0 ]; then
    mkdir -p "$data" /run/mysqld
    chown -R mysql:mysql "$data" /run/mysqld
    exec setpriv --reuid=mysql --regid=mysql --init-groups -- "$0" "$@"
fi

initialise() {
    local root_password root_host database user password
    root_password="$(setting ROOT_PASSWORD)"
    root_host="$(setting ROOT_HOST)"; root_host="${root_host:-%}"
    database="$(setting DATABASE)"; user="$(setting USER)"; password="$(setting PASSWORD)"
    [ -n "$root_password" ] || [ -n "$(setting ALLOW_EMPTY_ROOT_PASSWORD)" ] ||
        die "MARIADB_ROOT_PASSWORD is empty"

    # While it is being set up the server has no port, so that a client on the
    # network cannot take it for ready; nor is it part of a cluster.
    if [ "$server" = mariadbd ]; then
        mariadb-install-db --datadir="$data" --auth-root-authentication-method=normal \
            --skip-test-db --cross-bootstrap > /dev/null
        "$@" --skip-networking --skip-slave-start --wsrep-on=OFF &
    else
        "$@" --initialize-insecure
        "$@" --skip-networking --skip-replica-start &
    fi
    local process=$! tries=0
    local admin=("$client" --no-defaults --protocol=socket --socket="$socket" --user=root)
    until "${admin[@]}" -e 'SELECT 1' > /dev/null 2>&1; do
        kill -0 "$process" 2> /dev/null || die "the server did not start"
        tries=$((tries + 1)); [ "$tries" -lt 300 ] || die "the server did not get ready in 60 s"
        sleep 0.2
    done

    {
        [ -z "$database" ] || echo "CREATE DATABASE IF NOT EXISTS $(name "$database");"
        if [ -n "$user" ] && [ "$user" != root ]; then
            echo "CREATE USER $(text "$user")@'%' IDENTIFIED BY $(text "$password");"
            [ -z "$database" ] || echo "GRANT ALL ON $(name "$database").* TO $(text "$user")@'%';"
        fi
        if [ "$root_host" != localhost ]; then
            echo "CREATE USER root@$(text "$root_host") IDENTIFIED BY $(text "$root_password");"
            echo "GRANT ALL ON *.* TO root@$(text "$root_host") WITH GRANT OPTION;"
        fi
        # The data directory is made with these, without a password.
        echo "DROP USER IF EXISTS root@'127.0.0.1', root@'::1', root@$(text "${HOSTNAME,,}");"
        echo "ALTER USER root@localhost IDENTIFIED BY $(text "$root_password");"
    } | "${admin[@]}"
    export MYSQL_PWD="$root_password"

    local script
    for script in /docker-entrypoint-initdb.d/*; do
        case "$script" in
        *.sh)
            echo "entrypoint: $script"
            # shellcheck disable=SC1090
            if [ -x "$script" ]; then "$script"; else . "$script"; fi ;;
        *.sql)
            echo "entrypoint: $script"
            "${admin[@]}" ${database:+"$database"} < "$script" ;;
        *.sql.gz)
            echo "entrypoint: $script"
            gunzip -c "$script" | "${admin[@]}" ${database:+"$database"} ;;
        esac
    done
    kill -TERM "$process"
    wait "$process"
    unset MYSQL_PWD
}

[ -d "$data/mysql" ] || initialise "$@"
exec "$@"
