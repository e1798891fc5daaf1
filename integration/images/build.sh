#!/bin/bash
# Builds the test images from Debian's packages, for machines that reach no
# image registry. Needs Docker, apt's mirror, and root (debootstrap).
# "build.sh" builds what Debian's stable suite has. The others come from suites that not every mirror
# serves: "build.sh mysql" and "build.sh postgres" from the rolling one, "build.sh postgres-old" from
# the suite before stable, and "build.sh patroni" what a cluster of Patroni needs, on PostgreSQL 17.
# "build.sh initialised IMAGE" makes the data directory of IMAGE, from wherever that is.
# Prints the image names as NAME=VALUE lines on stdout (one image alone without NAME=),
# everything else on stderr. An image whose sources have not changed is not built again.
set -euo pipefail
cd "$(dirname "$0")"

suite=trixie # PostgreSQL 17, MariaDB 11.8, Galera 4, PgBouncer 1.24
rolling=sid  # MySQL 9, PostgreSQL 18
before=bookworm # PostgreSQL 15
stable_packages="postgresql postgresql-client pgbouncer mariadb-server mariadb-client galera-4 rsync"

# The classic builder needs no plugin and no registry for its own front end.
export DOCKER_BUILDKIT=0

say() { echo "images: $*" >&2; }
die() { say "$*"; exit 1; }

# digest FILE…: twelve hex digits that change with the files' contents.
digest() { cat "$@" | sha256sum | cut -c1-12; }
exists() { docker image inspect "$1" > /dev/null 2>&1; }

rootfs="pooldriver-test-rootfs:"
base="pooldriver-test-base:$suite-$(digest base/Dockerfile)"
postgres="pooldriver-test-postgres:$(digest base/Dockerfile postgres/*)" # and the suite
patroni="pooldriver-test-patroni:$suite-$(digest base/Dockerfile postgres/* patroni/Dockerfile)"
mariadb="pooldriver-test-mariadb:11.8-$(digest base/Dockerfile mysql/mariadb.Dockerfile mysql/entrypoint.sh)"
mysql="pooldriver-test-mysql:9-$(digest mysql/mysql.Dockerfile mysql/entrypoint.sh)"

# mirror prints the first of apt's own sources that is Debian's, or POOLDRIVER_DEBIAN_MIRROR.
mirror() {
    local found="${POOLDRIVER_DEBIAN_MIRROR:-}"
    # shellcheck disable=SC2016
    [ -n "$found" ] || found="$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' 2> /dev/null |
        awk '$1 == "Debian" && $2 !~ /security/ && !found { found = $2 } END { print found }')"
    [ -n "$found" ] || die "apt has no source of Debian: set POOLDRIVER_DEBIAN_MIRROR"
    echo "$found"
}

install_debootstrap() {
    command -v debootstrap > /dev/null && return
    [ "$(id -u)" = 0 ] || die "debootstrap is missing and only root can install it: apt-get install debootstrap"
    command -v apt-get > /dev/null || die "debootstrap is missing and there is no apt-get to install it"
    say "installing debootstrap with apt-get"
    apt-get update > /dev/null 2>&1 || say "apt-get update failed, trying with the lists at hand"
    apt-get install -y --no-install-recommends debootstrap >&2
}

# import_rootfs SUITE: a minimal Debian as an image.
import_rootfs() {
    exists "$rootfs$1" && return
    install_debootstrap
    [ "$(id -u)" = 0 ] || die "debootstrap needs root: run this as root, or set POOLDRIVER_POSTGRES_IMAGE, POOLDRIVER_MARIADB_IMAGE and POOLDRIVER_MYSQL_IMAGE"
    local dir from
    from="$(mirror)"
    dir="$(mktemp -d)"
    # shellcheck disable=SC2064
    trap "rm -rf '$dir' '$dir.log'" EXIT
    say "debootstrap $1 from $from (about a minute)"
    local script=() # an older debootstrap has no script named after the suite
    [ -e "/usr/share/debootstrap/scripts/$1" ] || script=(/usr/share/debootstrap/scripts/sid)
    debootstrap --variant=minbase "$1" "$dir" "$from" "${script[@]}" > "$dir.log" 2>&1 ||
        { tail -n 20 "$dir.log" >&2; die "debootstrap failed"; }
    tar -C "$dir" -c . | docker import - "$rootfs$1" > /dev/null
    rm -rf "$dir" "$dir.log"
}

# build IMAGE ARGUMENTS: its output is shown only if it fails.
build() {
    local image="$1" log
    shift
    log="$(mktemp)"
    docker build -t "$image" "$@" > "$log" 2>&1 || { tail -n 30 "$log" >&2; rm -f "$log"; die "building $image failed"; }
    rm -f "$log"
}

# build_base SUITE PACKAGES
build_base() {
    local image="${base/$suite/$1}"
    exists "$image" && return
    import_rootfs "$1"
    say "building $image (about a minute)"
    build "$image" --build-arg ROOTFS="$rootfs$1" --build-arg PACKAGES="$2" base
}

# build_server IMAGE DOCKERFILE SUITE PACKAGES: one that stands on the base of that suite.
build_server() {
    if exists "$1"; then say "$1 is up to date"; return; fi
    build_base "$3" "$4"
    say "building $1"
    build "$1" --build-arg BASE="${base/$suite/$3}" -f "$2" "$(dirname "$2")"
}

# build_postgres SUITE PACKAGES: prints the image's name.
build_postgres() {
    build_server "$postgres-$1" postgres/Dockerfile "$1" "$2"
    echo "$postgres-$1"
}

build_mysql() {
    if exists "$mysql"; then say "$mysql is up to date"; return; fi
    import_rootfs "$rolling"
    say "building $mysql (about a minute)"
    build "$mysql" --build-arg ROOTFS="$rootfs$rolling" -f mysql/mysql.Dockerfile mysql
}

build_patroni() {
    if exists "$patroni"; then say "$patroni is up to date"; return; fi
    local from
    from="$(build_postgres "$suite" "$stable_packages")"
    say "building $patroni (about a minute)"
    build "$patroni" --build-arg BASE="$from" patroni
}

# build_initialised IMAGE: prints the name of IMAGE with its data directory.
build_initialised() {
    local id image
    id="$(docker image inspect -f '{{.Id}}' "$1")" || die "$1 is not here"
    image="pooldriver-test-initialised:$(echo "$id" | digest - initialised/*)"
    if ! exists "$image"; then
        say "making the data directory of $1 (some seconds)"
        build "$image" --build-arg BASE="$1" initialised
    fi
    echo "$image"
}

case "${1:-}" in
initialised) build_initialised "$2"; exit ;;
patroni) build_patroni; echo "$patroni"; exit ;;
mysql) build_mysql; echo "$mysql"; exit ;;
postgres) build_postgres "$rolling" "postgresql postgresql-client"; exit ;;
postgres-old) build_postgres "$before" "postgresql postgresql-client"; exit ;;
esac
stable="$(build_postgres "$suite" "$stable_packages")"
build_server "$mariadb" mysql/mariadb.Dockerfile "$suite" "$stable_packages"
echo "POOLDRIVER_POSTGRES_17_IMAGE=$stable"
echo "POOLDRIVER_MARIADB_IMAGE=$mariadb"
# These need no more than the base has: their entrypoints are the tests' own.
echo "POOLDRIVER_GALERA_IMAGE=$mariadb"
echo "POOLDRIVER_PGBOUNCER_IMAGE=$stable"
