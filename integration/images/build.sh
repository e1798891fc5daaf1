#!/bin/bash
# Builds the test images from Debian's packages, for machines that reach no
# image registry. Needs Docker, apt's mirror, and root (debootstrap).
# Prints the image names as NAME=VALUE lines on stdout, everything else on
# stderr. An image whose sources have not changed is not built again.
set -euo pipefail
cd "$(dirname "$0")"

suite=trixie # PostgreSQL 17, MariaDB 11.8, Galera 4, PgBouncer 1.24
mirror="${POOLDRIVER_DEBIAN_MIRROR:-http://deb.debian.org/debian}"

# The classic builder needs no plugin and no registry for its own front end.
export DOCKER_BUILDKIT=0

say() { echo "images: $*" >&2; }
die() { say "$*"; exit 1; }

# digest FILE…: twelve hex digits that change with the files' contents.
digest() { cat "$@" | sha256sum | cut -c1-12; }
exists() { docker image inspect "$1" > /dev/null 2>&1; }

rootfs="pooldriver-test-rootfs:$suite"
base="pooldriver-test-base:$suite-$(digest base/Dockerfile)"
postgres="pooldriver-test-postgres:17-$(digest base/Dockerfile postgres/*)"
mariadb="pooldriver-test-mariadb:11.8-$(digest base/Dockerfile mariadb/*)"

install_debootstrap() {
    command -v debootstrap > /dev/null && return
    [ "$(id -u)" = 0 ] || die "debootstrap is missing and only root can install it: apt-get install debootstrap"
    command -v apt-get > /dev/null || die "debootstrap is missing and there is no apt-get to install it"
    say "installing debootstrap with apt-get"
    apt-get update > /dev/null 2>&1 || say "apt-get update failed, trying with the lists at hand"
    apt-get install -y --no-install-recommends debootstrap >&2
}

import_rootfs() {
    exists "$rootfs" && return
    install_debootstrap
    [ "$(id -u)" = 0 ] || die "debootstrap needs root: run this as root, or set POOLDRIVER_POSTGRES_IMAGE and POOLDRIVER_MYSQL_IMAGE"
    local dir
    dir="$(mktemp -d)"
    # shellcheck disable=SC2064
    trap "rm -rf '$dir'" EXIT
    say "debootstrap $suite from $mirror (about a minute)"
    local script=() # an older debootstrap has no script named after the suite
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=(/usr/share/debootstrap/scripts/sid)
    debootstrap --variant=minbase "$suite" "$dir" "$mirror" "${script[@]}" > "$dir.log" 2>&1 ||
        { tail -n 20 "$dir.log" >&2; die "debootstrap failed"; }
    tar -C "$dir" -c . | docker import - "$rootfs" > /dev/null
    rm -rf "$dir" "$dir.log"
}

build_base() {
    exists "$base" && return
    import_rootfs
    say "building $base (about a minute)"
    docker build --build-arg ROOTFS="$rootfs" -t "$base" base >&2 || die "building $base failed"
}

build_server() {
    if exists "$1"; then say "$1 is up to date"; return; fi
    build_base
    say "building $1"
    docker build --build-arg BASE="$base" -t "$1" "$2" >&2 || die "building $1 failed"
}

build_server "$postgres" postgres
build_server "$mariadb" mariadb
echo "POOLDRIVER_POSTGRES_IMAGE=$postgres"
echo "POOLDRIVER_MYSQL_IMAGE=$mariadb"
# These need no more than the base has: their entrypoints are the tests' own.
echo "POOLDRIVER_GALERA_IMAGE=$mariadb"
echo "POOLDRIVER_PGBOUNCER_IMAGE=$postgres"
