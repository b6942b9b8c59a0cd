#!/usr/bin/env bash
# Checks every query of `registry` against the schema that the migrations make,
# and rewrites `.sqlx`. With `--check` it changes nothing: it compares, shows the
# difference and fails if there is one.
#
# Uses DATABASE_URL (the owner's, to an EMPTY database whose cluster has the
# roles pml_owner and pml_app), or else a Postgres of its own that is gone
# afterwards, found as `deploy/find-postgres.sh` does. Needs psql, which comes
# with every Postgres that the script finds.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

fail() { echo "regenerate-sqlx: $*" >&2; exit 1; }

check=
case ${1:-} in
    --check) check=1 ;;
    "") ;;
    *) fail "unknown argument \`$1\`; there is only --check" ;;
esac

bin=${PML_PG_BIN:-$(deploy/find-postgres.sh)}
PATH=$bin:$PATH
command -v psql >/dev/null || fail "psql is missing in $bin; install postgresql or set PML_PG_BIN"

# The account that runs Postgres must be able to pass through; it cannot be root.
work=$(mktemp -d)
chmod 711 "$work"
fresh=$work/sqlx
mkdir "$fresh"
started=
clean() {
    if [ -n "$started" ]; then
        as_pg pg_ctl -D "$work/pg/data" -m immediate -w stop >/dev/null 2>&1 || true
    fi
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP

account=
if [ "$(id -u)" = 0 ]; then
    for name in pml postgres nobody; do
        if id -u "$name" >/dev/null 2>&1; then account=$name; break; fi
    done
    [ -n "$account" ] || fail "Postgres cannot run as root; add a user \`pml\`"
fi
as_pg() {
    if [ -n "$account" ]; then
        (cd "$work/pg" && exec runuser -u "$account" -- env PATH="$PATH" "$@")
    else
        "$@"
    fi
}

if [ -z "${DATABASE_URL:-}" ]; then
    mkdir -m 700 "$work/pg"
    if [ -n "$account" ]; then chown "$account" "$work/pg"; fi
    as_pg initdb -D "$work/pg/data" -U pml -A trust -E UTF8 --locale=C --no-sync >/dev/null \
        || fail "initdb failed"
    started=1
    as_pg pg_ctl -D "$work/pg/data" -w -l "$work/pg/log" start \
        -o "-c listen_addresses= -c fsync=off -c unix_socket_directories='$work/pg'" >/dev/null \
        || { cat "$work/pg/log" >&2; fail "Postgres did not start"; }
    psql -qX -h "$work/pg" -U pml -d postgres -v ON_ERROR_STOP=1 \
        -c 'create role pml_owner login' -c 'create role pml_app login' \
        -c 'create database pml owner pml_owner'
    DATABASE_URL="postgres://pml_owner@localhost/pml?host=$work/pg"
fi

for file in migrations/[0-9]*.sql; do
    psql -qX -d "$DATABASE_URL" -v ON_ERROR_STOP=1 -1 -f "$file" >/dev/null
done

# The flag makes this a build of its own, so that cargo expands every query
# anew; only the library has queries. What it built is of no further use.
DATABASE_URL=$DATABASE_URL SQLX_OFFLINE=false SQLX_OFFLINE_DIR=$fresh \
    cargo rustc --quiet --locked -p registry --lib --profile check \
    --message-format json-render-diagnostics -- --cfg "regenerate_$$" >"$work/built"
sed -n 's/.*"filenames":\["\([^"]*libregistry-[^"]*\.rmeta\)".*/\1/p' "$work/built" | tr '\n' '\0' | xargs -0 -r rm -f
[ -n "$(ls -A "$fresh")" ] || fail "no query was written"
count=$(find "$fresh" -name 'query-*.json' | wc -l)

if [ -n "$check" ]; then
    if diff -ru .sqlx "$fresh" >"$work/difference"; then
        echo "regenerate-sqlx: $count queries, as committed"
        exit 0
    fi
    sed "s|$fresh|regenerated|g" "$work/difference" >&2
    fail "\`.sqlx\` is not what the migrations and queries make; run migrations/regenerate-sqlx.sh and commit it"
fi
mkdir -p .sqlx
rm -f .sqlx/query-*.json
cp "$fresh"/query-*.json .sqlx/
echo "regenerate-sqlx: $count queries"
