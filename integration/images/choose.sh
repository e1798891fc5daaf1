#!/bin/bash
# Decides which image each test server runs from and writes the decision to
# chosen.env, where the tests find it:
#   1. the variable of the environment, such as POOLDRIVER_POSTGRES_IMAGE, where set;
#   2. the image below, where present or to be had from a registry;
#   3. an image built here from Debian's packages (build.sh).
# MySQL may be had in none of these ways: its line is empty then, and its tests do not run.
set -euo pipefail
cd "$(dirname "$0")"

# Each variable with the image that a registry has.
wanted="POOLDRIVER_POSTGRES_IMAGE=postgres:17
POOLDRIVER_MARIADB_IMAGE=mariadb:11.8
POOLDRIVER_MYSQL_IMAGE=mysql:8.4
POOLDRIVER_GALERA_IMAGE=mariadb:11.8
POOLDRIVER_PGBOUNCER_IMAGE=edoburu/pgbouncer:v1.24.1-p1"

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

built=
while IFS='=' read -r variable official; do
    name="${!variable:-}"
    if [ -z "$name" ] && obtainable "$official"; then name="$official"; fi
    if [ -z "$name" ] && [ "$variable" = POOLDRIVER_MYSQL_IMAGE ]; then
        name="$(./build.sh mysql)" || say "no registry serves $official, and Debian's rolling suite cannot be had here"
    elif [ -z "$name" ]; then
        if [ -z "$built" ]; then
            say "no registry serves $official: using images built from Debian's packages"
            built="$(./build.sh)"
        fi
        name="$(sed -n "s/^$variable=//p" <<< "$built")"
    fi
    echo "$variable=$name"
done <<< "$wanted" > chosen.env.new
mv chosen.env.new chosen.env
say "$(tr '\n' ' ' < chosen.env)"
