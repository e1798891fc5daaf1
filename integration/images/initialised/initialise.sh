#!/bin/bash
# Has the image's own entrypoint make a data directory, and keeps it in /initialised. The server has it
# copied when it starts for the first time, see package testbed, whose administrators' passwords these are.
set -euo pipefail

made=/initialised
if command -v postgres > /dev/null; then
    export PGDATA="$made" # none of the image's volumes, of which no image keeps what is in them
    POSTGRES_PASSWORD=postgres-administrator POSTGRES_INITDB_ARGS="--no-sync --auth-host=scram-sha-256" \
        docker-entrypoint.sh postgres -c fsync=off &
    answers() { pg_isready -q -h 127.0.0.1; }
    signal=INT
else
    if command -v mariadbd > /dev/null; then server=mariadbd admin=mariadb-admin; else server=mysqld admin=mysqladmin; fi
    MYSQL_ROOT_PASSWORD=mysql-administrator MARIADB_ROOT_PASSWORD=mysql-administrator docker-entrypoint.sh "$server" &
    answers() { "$admin" --protocol=tcp --host=127.0.0.1 --user=root --password=mysql-administrator ping > /dev/null 2>&1; }
    signal=TERM
fi
process=$!
for _ in $(seq 600); do
    if answers; then break; fi # while it is being set up the server has no port
    kill -0 "$process"
    sleep 0.2
done
answers
kill -"$signal" "$process"
wait "$process"
if [ ! -d "$made" ]; then
    cp -a /var/lib/mysql "$made"
    rm -f "$made/auto.cnf" # by which servers know each other
fi
