#!/usr/bin/env bash
# Builds a release of both programs into a folder: the programs, the statement of what is newest, install.sh, the packages
# for npm, PyPI and Debian, the formula of Homebrew, the bundle for desktop apps, links for editors, the Helm chart, and the
# bill of materials.
#
#   deploy/release.sh FOLDER
#   deploy/release.sh --install-script FOLDER    only install.sh
#
# PML_RELEASE_SECRET_KEY   the secret key of minisign, without a password; without it, nothing is signed
# PML_RELEASE_KEYS         the public keys that the programs trust, separated by spaces
# PML_RELEASE_URL          where the programs look for releases
# PML_RELEASE_DAYS         for how many days the statement of what is newest holds (90)
# PML_RELEASE_MACHINES     what to build for: "x86_64 aarch64" (this machine's)
# PML_RELEASE_PROGRAMS     a folder with programs that were built already; for several machines, with a folder for each
#
# The programs are linked by zig, so that they run with glibc 2.17 on any Linux, whatever is on the machine that builds.
# The same commit, toolchain and settings give the same bytes, except for the signatures and the time until which they hold.
set -euo pipefail

# The oldest glibc that Rust supports: that of CentOS 7 and Ubuntu 14.04.
glibc=2.17
# The size of `pml`, in bytes.
size_limit=25000000

fail() { echo "release.sh: $1" >&2; exit 1; }
need() { command -v "$1" > /dev/null || fail "$1 is missing"; }

only_script=
if [ "${1:-}" = --install-script ]; then only_script=1; shift; fi
folder=${1:?FOLDER is missing}
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
export PML_RELEASE_KEYS=${PML_RELEASE_KEYS:-} PML_RELEASE_URL=${PML_RELEASE_URL:-}
PML_RELEASE_URL=${PML_RELEASE_URL%/}
# They stand in a string of install.sh, and in links.
case $PML_RELEASE_URL in *[!A-Za-z0-9:/._~%-]*) fail "PML_RELEASE_URL has a character that is not allowed there" ;; esac
case $PML_RELEASE_KEYS in *[!A-Za-z0-9+/=\ ]*) fail "PML_RELEASE_KEYS are not public keys of minisign" ;; esac

install_script() {
    sed -e "s|@URL@|$PML_RELEASE_URL|" -e "s|@KEYS@|$PML_RELEASE_KEYS|" "$root/deploy/install.sh" > "$1/install.sh"
    chmod 755 "$1/install.sh"
}

if [ -n "$only_script" ]; then
    install_script "$folder"
    exit 0
fi

for tool in cargo gzip python3 sha256sum strip git tar; do need "$tool"; done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
read -ra machines <<< "${PML_RELEASE_MACHINES:-$(uname -m)}"
for machine in "${machines[@]}"; do
    case $machine in x86_64 | aarch64) ;; *) fail "PML_RELEASE_MACHINES: there are no releases for $machine" ;; esac
done
# The time of the commit, in every archive.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# Wherever cargo is started.
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")

# Builds the programs for one machine.
build() {
    # Paths of this machine would be in the programs, and differ from one machine to another.
    local cargo_home=${CARGO_HOME:-$HOME/.cargo}
    export RUSTFLAGS="--remap-path-prefix=$root=/pml --remap-path-prefix=$cargo_home=/cargo"
    export CARGO_TARGET_DIR=$target
    # In the folder whose `.cargo/config.toml` counts.
    (cd "$root" &&
        cargo zigbuild --locked --profile cli -p client-cli --target "$1-unknown-linux-gnu.$glibc" &&
        cargo zigbuild --locked --release -p server --target "$1-unknown-linux-gnu.$glibc")
}

programs=${PML_RELEASE_PROGRAMS:-}
if [ -z "$programs" ]; then
    for machine in "${machines[@]}"; do
        [ -d "$(rustc --print sysroot)/lib/rustlib/$machine-unknown-linux-gnu" ] ||
            fail "the standard library for $machine is missing: rustup target add $machine-unknown-linux-gnu"
    done
    # Nothing of the machine: the versions and their hashes are in the repository.
    python3 -m venv "$work/tools"
    "$work/tools/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
        -r "$root/deploy/release-tools.txt"
    export PATH="$work/tools/bin:$PATH"
    for machine in "${machines[@]}"; do build "$machine"; done
fi

# The newest glibc that the programs may need. Programs that somebody else built may need what they need.
limit=(--glibc "$glibc")
[ -z "$programs" ] || limit=()
mkdir -p "$folder/$version"
for machine in "${machines[@]}"; do
    if [ -z "$programs" ]; then
        built=$work/built/$machine
        mkdir -p "$built"
        linked=$target/$machine-unknown-linux-gnu
        cp "$linked/cli/pml" "$linked/release/pml-server" "$built"
    elif [ -d "$programs/$machine" ]; then
        built=$programs/$machine
    else
        built=$programs
    fi
    mkdir -p "$work/bin/$machine"
    for program in pml pml-server; do
        cp "$built/$program" "$work/bin/$machine/$program"
        # Those of other machines, only their own tools can read; cargo has linked them without symbols.
        [ "$machine" != "$(uname -m)" ] || strip --strip-all "$work/bin/$machine/$program"
    done
    size=$(stat -c %s "$work/bin/$machine/pml")
    [ -n "$programs" ] || [ "$size" -le "$size_limit" ] ||
        fail "pml for $machine has $size bytes, more than $size_limit: docs/adr/0075-pml-is-built-for-size.md"
done

# The programs get their list of dependencies, so it comes before everything that has a program in it.
python3 "$root/deploy/bill.py" --root "$root" --bin "$work/bin" --out "$folder/$version" \
    --version "$version" --machines "${machines[@]}"
for machine in "${machines[@]}"; do
    for program in pml pml-server; do
        touch -d "@$SOURCE_DATE_EPOCH" "$work/bin/$machine/$program"
        gzip -n -"${PML_RELEASE_LEVEL:-9}" -c "$work/bin/$machine/$program" > "$folder/$version/$program-$machine-linux.gz"
    done
done
python3 "$root/deploy/packages.py" --root "$root" --bin "$work/bin" --out "$folder/$version" \
    --version "$version" --machines "${machines[@]}" "${limit[@]}"

# As `helm package` packs it. The names and times of this machine's files would differ from one machine to another.
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    -C "$root/deploy/helm" -cf - pml-server | gzip -n -9 > "$folder/$version/pml-server-$version.tgz"

install_script "$folder"
# In the folder of the version too, where the signature covers it.
cp -p "$folder/install.sh" "$folder/$version/install.sh"

(cd "$folder/$version" && rm -f SHA256SUMS SHA256SUMS.minisig && sha256sum -- * > "$work/SHA256SUMS")
mv "$work/SHA256SUMS" "$folder/$version/SHA256SUMS"

{
    echo 'pml-release 1'
    echo 'channel stable'
    echo "version $version"
    date -u -d "+${PML_RELEASE_DAYS:-90} days" '+expires %Y-%m-%dT%H:%M:%SZ'
    for machine in "${machines[@]}"; do
        for program in pml pml-server; do
            packed=$folder/$version/$program-$machine-linux.gz
            echo "file ${packed##*/} $(stat -c %s "$packed") $(sha256sum "$packed" | cut -d ' ' -f 1)" \
                "$(stat -c %s "$work/bin/$machine/$program")"
        done
    done
} > "$folder/latest.txt"

# What says which version is the newest expires; what a version consists of stays true.
if [ -n "${PML_RELEASE_SECRET_KEY:-}" ]; then
    need minisign
    sign() { minisign -S -W -s "$PML_RELEASE_SECRET_KEY" -m "$1" -t "$2" > /dev/null; }
    sign "$folder/latest.txt" "pml stable $version"
    sign "$folder/$version/SHA256SUMS" "pml $version"
else
    echo "release.sh: PML_RELEASE_SECRET_KEY is not set, so nothing is signed; sign it with minisign:" >&2
    echo "  minisign -S -W -s pml.key -t 'pml stable $version' -m latest.txt" >&2
    echo "  minisign -S -W -s pml.key -t 'pml $version' -m $version/SHA256SUMS" >&2
fi
echo "Version $version is in $folder" >&2
