#!/bin/bash
# Runs unit tests, conformance, settings, sandboxes and logins with the newest release of every
# driver and of every server. "go get -u" or a cloud brings them to users on the day that they come
# out. The tree stays as it is: the releases are raised in a copy. The last line says which they were.
set -euo pipefail
cd "$(dirname "$0")/.."
GO="${GO:-go}"

say() { echo "newest: $*" >&2; }

# Each module, and where it is used.
raised="github.com/jackc/pgx/v5
github.com/go-sql-driver/mysql
github.com/alexbrainman/odbc
modernc.org/sqlite
github.com/riverqueue/river
github.com/riverqueue/river/riverdriver
github.com/riverqueue/river/rivertype
github.com/riverqueue/river/rivershared
go.opentelemetry.io/otel
go.opentelemetry.io/otel/metric
go.opentelemetry.io/otel/sdk/metric
github.com/prometheus/client_golang"

copy="$(mktemp -d)"
trap 'rm -rf "$copy" "$copy.began"' EXIT
integration/images/choose.sh newest
git ls-files -z | tar -c --null -T - | tar -x -C "$copy"
cp integration/images/*.env "$copy/integration/images/"
cd "$copy"
sleep 1 && touch "$copy.began" # what changes from here on is newer

# raise MODULE: in each of our modules that requires it directly. A proxy may list a release that it does not
# serve: then the one before it.
raise() {
    local module="$1" version file
    for version in $($GO -C integration list -m -versions "$module" 2> /dev/null | tr ' ' '\n' | grep '^v' | grep -v -- - | tail -n 4 | tac); do
        $GO -C integration mod download "$module@$version" > /dev/null 2>&1 || { say "the module proxy does not serve $module $version"; continue; }
        for file in $(find . -name go.mod -print0 | xargs -0 grep -lE "^(require )?[[:space:]]*$module v[^ ]+$"); do
            grep -qF "$module $version" "$file" || (cd "$(dirname "$file")" && GOWORK=off $GO mod edit -require="$module@$version")
        done
        echo "${module#github.com/} $version"
        return
    done
    say "no newer release of $module can be had: it stays"
}

releases="$(for module in $raised; do raise "$module"; done | paste -sd, | sed 's/,/, /g')"
set -a; . integration/images/newest.env; set +a
server() { docker run --rm --entrypoint "$2" "$1" --version | sed 's/^[^0-9]*//; s/[- ].*//'; }
releases="$releases, PostgreSQL $(server "$POOLDRIVER_POSTGRES_IMAGE" postgres), MariaDB $(docker run --rm --entrypoint mariadbd "$POOLDRIVER_MARIADB_IMAGE" --version | grep -oE '[0-9]+\.[0-9.]+' | head -1)"
if [ -n "$POOLDRIVER_MYSQL_IMAGE" ]; then releases="$releases, MySQL $(server "$POOLDRIVER_MYSQL_IMAGE" mysqld)"; fi
say "$releases"

# What "make test" has run on need not run again. The images have the same names then.
same_images() { while IFS= read -r line; do grep -qxF "$line" integration/images/chosen.env || return 1; done < integration/images/newest.env; }
if same_images && [ -z "$(find . -name go.mod -newer "$copy.began" | head -1)" ]; then
    say "nothing is newer than what \"make test\" runs on: $releases"
    exit
fi

# Everything about the texts of SQL and about rows, and each feature that lies between a driver and a
# server. The workspace adds the sums of the raised releases.
tests='Settings|Tenant|NoSessionVariable|Conformance|BehavesAsTheBareDriver|Certificate|OptionsForTLS|Password|CalledClean|NoVolatile|Sandbox'
timeout="${TEST_TIMEOUT:-40m}"
for module in . tests dialects/mysql dialects/postgres dialects/sqlite sandbox; do $GO -C "$module" test -timeout "$timeout" ./...; done
# shellcheck disable=SC2086
$GO -C integration test ${TAGS:-} -timeout "$timeout" -run "$tests" . ./sandboxes
for module in pgxpooldriver riverpooldriver otelpooldriver prompooldriver; do $GO -C "$module" test -timeout "$timeout" ./...; done
if [ -n "$POOLDRIVER_MYSQL_IMAGE" ]; then
    POOLDRIVER_MYSQL_SERVER=mysql $GO -C integration test -timeout "$timeout" -run 'MySQL|Settings|Conformance|Certificate|Password' -skip 'Postgres|ODBC' .
fi
say "passed with $releases"
