#!/usr/bin/env bash
# Builds a release of both programs into a folder: the programs, the statement of what is newest, install.sh, the packages
# for npm, PyPI and Debian, the Helm chart, and the bill of materials.
#
#   deploy/release.sh FOLDER
#
# PML_RELEASE_SECRET_KEY   the secret key of minisign, without a password; without it, nothing is signed
# PML_RELEASE_KEYS         the public keys that the programs trust, separated by spaces
# PML_RELEASE_URL          where the programs look for releases
# PML_RELEASE_DAYS         for how many days the statement of what is newest holds (90)
# PML_RELEASE_PROGRAMS     a folder with programs that were built already
#
# The same commit, toolchain and settings give the same bytes, except for the signature and the time until which it holds.
set -euo pipefail

folder=${1:?FOLDER is missing}
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

need() { command -v "$1" > /dev/null || { echo "release.sh needs $1" >&2; exit 1; }; }
for tool in cargo gzip python3 sha256sum strip git tar; do need "$tool"; done

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
machine=$(uname -m)
# The time of the commit, in every archive.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
export PML_RELEASE_KEYS=${PML_RELEASE_KEYS:-} PML_RELEASE_URL=${PML_RELEASE_URL:-}

programs=${PML_RELEASE_PROGRAMS:-}
if [ -z "$programs" ]; then
    # Paths of this machine would be in the programs, and differ from one machine to another.
    cargo_home=${CARGO_HOME:-$HOME/.cargo}
    RUSTFLAGS="--remap-path-prefix=$root=/pml --remap-path-prefix=$cargo_home=/cargo" \
        cargo build --manifest-path "$root/Cargo.toml" --locked --release -p client-cli -p server
    programs=${CARGO_TARGET_DIR:-$root/target}/release
fi

mkdir -p "$folder/$version" "$work/bin"
for program in pml pml-server; do
    cp "$programs/$program" "$work/bin/$program"
    strip --strip-all "$work/bin/$program"
    touch -d "@$SOURCE_DATE_EPOCH" "$work/bin/$program"
    gzip -n -"${PML_RELEASE_LEVEL:-9}" -c "$work/bin/$program" > "$folder/$version/$program-$machine-linux.gz"
done

{
    echo 'pml-release 1'
    echo 'channel stable'
    echo "version $version"
    date -u -d "+${PML_RELEASE_DAYS:-90} days" '+expires %Y-%m-%dT%H:%M:%SZ'
    for packed in "$folder/$version"/*-linux.gz; do
        name=$(basename "$packed")
        unpacked=$(stat -c %s "$work/bin/${name%-"$machine"-linux.gz}")
        echo "file $name $(stat -c %s "$packed") $(sha256sum "$packed" | cut -d ' ' -f 1) $unpacked"
    done
} > "$folder/latest.txt"
if [ -n "${PML_RELEASE_SECRET_KEY:-}" ]; then
    need minisign
    minisign -S -W -s "$PML_RELEASE_SECRET_KEY" -m "$folder/latest.txt" -t "pml stable $version" > /dev/null
else
    echo "release.sh: PML_RELEASE_SECRET_KEY is not set, so latest.txt is not signed; sign it with minisign" >&2
fi

sed -e "s|@URL@|$PML_RELEASE_URL|" -e "s|@KEYS@|$PML_RELEASE_KEYS|" "$root/deploy/install.sh" > "$folder/install.sh"
chmod 755 "$folder/install.sh"

python3 "$root/deploy/packages.py" --root "$root" --bin "$work/bin" --out "$folder/$version" \
    --version "$version" --machine "$machine"

# As `helm package` packs it. The names and times of this machine's files would differ from one machine to another.
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    -C "$root/deploy/helm" -cf - pml-server | gzip -n -9 > "$folder/$version/pml-server-$version.tgz"

(cd "$folder/$version" && sha256sum -- * > "$work/SHA256SUMS" && mv "$work/SHA256SUMS" SHA256SUMS)
echo "Version $version is in $folder" >&2
