#!/bin/bash
# Decides which image each test server runs from and writes the decision to
# chosen.env, where the tests find it:
#   1. POOLDRIVER_POSTGRES_IMAGE, POOLDRIVER_MYSQL_IMAGE where set;
#   2. the official images, where present or to be had from a registry;
#   3. images built here from Debian's packages (build.sh).
set -euo pipefail
cd "$(dirname "$0")"

official_postgres=postgres:17
official_mysql=mysql:8.4

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

postgres="${POOLDRIVER_POSTGRES_IMAGE:-}"
mysql="${POOLDRIVER_MYSQL_IMAGE:-}"
if [ -z "$postgres" ] && obtainable "$official_postgres"; then postgres="$official_postgres"; fi
if [ -z "$mysql" ] && obtainable "$official_mysql"; then mysql="$official_mysql"; fi

if [ -z "$postgres" ] || [ -z "$mysql" ]; then
    say "no registry serves the official images: using ones built from Debian's packages"
    built="$(./build.sh)"
    [ -n "$postgres" ] || postgres="$(sed -n 's/^POOLDRIVER_POSTGRES_IMAGE=//p' <<< "$built")"
    [ -n "$mysql" ] || mysql="$(sed -n 's/^POOLDRIVER_MYSQL_IMAGE=//p' <<< "$built")"
fi

printf 'POOLDRIVER_POSTGRES_IMAGE=%s\nPOOLDRIVER_MYSQL_IMAGE=%s\n' "$postgres" "$mysql" > chosen.env.new
mv chosen.env.new chosen.env
say "PostgreSQL: $postgres; MySQL: $mysql"
