#!/usr/bin/env bash
# Rewrites `.sqlx`: checks every query of `registry` against the schema that the
# migrations make. Uses DATABASE_URL (the owner's, to an EMPTY database whose
# cluster has the roles pml_owner and pml_app), or else a Postgres of its own
# that is gone afterwards. Needs psql, which comes with Postgres.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

fail() { echo "regenerate-sqlx: $*" >&2; exit 1; }

bin=${PML_PG_BIN:-}
if [ -z "$bin" ] && ! command -v postgres >/dev/null; then
    bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -1)
fi
PATH=${bin:+$bin:}$PATH
command -v psql >/dev/null || fail "psql is missing; install postgresql or set PML_PG_BIN"

fresh=$(mktemp -d "$root/.sqlx.XXXXXX")
pg=
clean() {
    if [ -n "$pg" ]; then
        as_pg pg_ctl -D "$pg/data" -m immediate -w stop >/dev/null 2>&1 || true
        rm -rf "$pg"
    fi
    rm -rf "$fresh"
}
trap clean EXIT

as_pg() {
    if [ "$(id -u)" = 0 ]; then runuser -u postgres -- env PATH="$PATH" "$@"; else "$@"; fi
}

if [ -z "${DATABASE_URL:-}" ]; then
    command -v initdb >/dev/null || fail "initdb is missing; install postgresql or set PML_PG_BIN"
    pg=$(mktemp -d)
    chmod 711 "$pg"
    if [ "$(id -u)" = 0 ]; then chown postgres "$pg"; fi
    as_pg initdb -D "$pg/data" -U pml -A trust -E UTF8 --locale=C --no-sync >/dev/null
    as_pg pg_ctl -D "$pg/data" -w -l "$pg/log" start \
        -o "-c listen_addresses= -c fsync=off -c unix_socket_directories='$pg'" >/dev/null
    psql -qX -h "$pg" -U pml -d postgres -v ON_ERROR_STOP=1 \
        -c 'create role pml_owner login' -c 'create role pml_app login' \
        -c 'create database pml owner pml_owner'
    DATABASE_URL="postgres://pml_owner@localhost/pml?host=$pg"
fi

for file in migrations/[0-9]*.sql; do
    psql -qX -d "$DATABASE_URL" -v ON_ERROR_STOP=1 -1 -f "$file" >/dev/null
done

# Touched, or cargo would think that nothing is left to check.
touch registry/src/lib.rs
DATABASE_URL=$DATABASE_URL SQLX_OFFLINE=false SQLX_OFFLINE_DIR=$fresh \
    cargo check --quiet -p registry --all-targets
[ -n "$(ls -A "$fresh")" ] || fail "no query was written"
mkdir -p .sqlx
rm -f .sqlx/query-*.json
mv "$fresh"/query-*.json .sqlx/
echo "regenerate-sqlx: $(find .sqlx -name 'query-*.json' | wc -l) queries"
