#!/bin/bash
# Decides which image each test server runs from and writes the decision to
# chosen.env, where the tests find it:
#   1. the variable of the environment, such as POOLDRIVER_POSTGRES_IMAGE, where set;
#   2. the image below, where present or to be had from a registry;
#   3. an image built here from Debian's packages (build.sh).
# What is chosen of PostgreSQL, MariaDB and MySQL gets a data directory (initialised/).
# MySQL, Patroni and the older PostgreSQL may be had in none of these ways: their lines are empty then, and
# their tests do not run. Where PostgreSQL 18 cannot be had, the tests run on 17.
# "choose.sh newest" takes the newest releases that there are, and writes to newest.env.
set -euo pipefail
cd "$(dirname "$0")"

# Each variable with the image that a registry has.
wanted="POOLDRIVER_POSTGRES_17_IMAGE=postgres:17
POOLDRIVER_POSTGRES_IMAGE=postgres:18
POOLDRIVER_POSTGRES_OLD_IMAGE=postgres:13
POOLDRIVER_MARIADB_IMAGE=mariadb:11.8
POOLDRIVER_MYSQL_IMAGE=mysql:8.4
POOLDRIVER_GALERA_IMAGE=mariadb:11.8
POOLDRIVER_PGBOUNCER_IMAGE=edoburu/pgbouncer:v1.24.1-p1
POOLDRIVER_PATRONI_IMAGE=pooldriver-test-patroni" # no registry has one with etcd and HAProxy

chosen=chosen.env
if [ "${1:-}" = newest ]; then
    chosen=newest.env
    wanted="POOLDRIVER_POSTGRES_IMAGE=postgres:latest
POOLDRIVER_MARIADB_IMAGE=mariadb:latest
POOLDRIVER_MYSQL_IMAGE=mysql:latest"
fi

say() { echo "images: $*" >&2; }

docker version > /dev/null 2>&1 || { say "no Docker daemon answers: the integration tests cannot run"; exit 1; }

# obtainable IMAGE: present, or pulled. The manifest is asked for first, so that
# a machine without a registry is told apart in seconds.
obtainable() {
    docker image inspect "$1" > /dev/null 2>&1 && return
    timeout 20 docker manifest inspect "$1" > /dev/null 2>&1 || return 1
    say "pulling $1"
    timeout 600 docker pull -q "$1" >&2
}

# from_debian VARIABLE: the image built from Debian's packages.
from_debian() {
    case "$1" in
    POOLDRIVER_MYSQL_IMAGE) ./build.sh mysql || say "Debian's rolling suite cannot be had here: no tests on MySQL" ;;
    POOLDRIVER_PATRONI_IMAGE) [ -n "${LONG:-}${POOLDRIVER_LONG:-}" ] || return 0 # its tests are in the long form alone
        ./build.sh patroni || say "Debian's patroni cannot be had here: no tests on a cluster of Patroni" ;;
    POOLDRIVER_POSTGRES_OLD_IMAGE) ./build.sh postgres-old || say "Debian's former suite cannot be had here: no tests on an older PostgreSQL" ;;
    POOLDRIVER_POSTGRES_IMAGE)
        ./build.sh postgres && return
        say "Debian's rolling suite cannot be had here: the tests run on PostgreSQL 17"
        sed -n "s/^POOLDRIVER_POSTGRES_17_IMAGE=//p" <<< "$built" ;;
    *) sed -n "s/^$1=//p" <<< "$built" ;;
    esac
}

# initialised VARIABLE IMAGE: the image with its data directory made, if it is that of a server which starts alone.
initialised() {
    case "$1=$2" in
    *= | POOLDRIVER_GALERA_IMAGE=* | POOLDRIVER_PGBOUNCER_IMAGE=* | POOLDRIVER_PATRONI_IMAGE=*) echo "$2" ;;
    *) ./build.sh initialised "$2" || { say "each server on $2 will make its data directory"; echo "$2"; } ;;
    esac
}

built=
while IFS='=' read -r variable official; do
    name="${!variable:-}"
    if [ -z "$name" ] && obtainable "$official"; then name="$official"; fi
    if [ -z "$name" ]; then
        if [ -z "$built" ] && [ "$variable" != POOLDRIVER_PATRONI_IMAGE ]; then
            say "no registry serves $official: using images built from Debian's packages"
            built="$(./build.sh)"
        fi
        name="$(from_debian "$variable")"
    fi
    echo "$variable=$(initialised "$variable" "$name")"
done <<< "$wanted" > "$chosen.new"
mv "$chosen.new" "$chosen"
say "$(tr '\n' ' ' < "$chosen")"
