#!/bin/sh
# Installs the newest release of pml into ~/.local/bin, and with the argument `pml-server` the gateway.
#
#   PML_INSTALL_DIR   another folder
#   PML_RELEASE_URL   where releases are: a URL or a folder
#   PML_RELEASE_KEY   the public key of minisign that signs them
#
# The whole script is one command in braces: a shell that gets only a part of it runs nothing.
{
set -eu

# Set when a release is built.
URL=${PML_RELEASE_URL:-'@URL@'}
KEYS=${PML_RELEASE_KEY:-'@KEYS@'}

fail() {
    echo "install.sh: $1" >&2
    [ -z "${2:-}" ] || echo "  $2" >&2
    exit 1
}

has() { command -v "$1" > /dev/null 2>&1; }

# Writes a file of the release to $2.
fetch() {
    case $URL in
        https://* | http://127.0.0.1:* | http://localhost:*)
            if has curl; then
                curl --fail --silent --show-error --location --proto '=https,http' --proto-redir '=https' \
                    --max-time 600 --output "$2" "$URL/$1" || fail "cannot download $URL/$1"
            elif has wget; then
                wget -q -T 60 -O "$2" "$URL/$1" || fail "cannot download $URL/$1"
            else
                fail "neither curl nor wget is installed"
            fi ;;
        *://*) fail "$URL is not an https address" ;;
        *) [ -f "$URL/$1" ] || fail "$URL/$1 does not exist"
           cp "$URL/$1" "$2" || fail "cannot read $URL/$1" ;;
    esac
}

# Verifies the signature of a small file by minisign, or by openssl with the parts of the signature.
verify() {
    if has minisign; then
        for key in $KEYS; do
            if minisign -Vqm "$1" -x "$1.minisig" -P "$key" > /dev/null 2>&1; then return 0; fi
        done
        return 1
    fi
    has openssl || fail "neither minisign nor openssl is installed, so the release cannot be verified"
    sed -n 2p "$1.minisig" | base64 -d > "$work/signature" 2> /dev/null || return 1
    [ "$(wc -c < "$work/signature" | tr -d ' ')" = 74 ] || return 1
    tail -c 64 "$work/signature" > "$work/signature.raw"
    # The newer form signs the BLAKE2b-512 of the file.
    case $(head -c 2 "$work/signature") in
        ED) openssl dgst -blake2b512 -binary "$1" > "$work/signed" 2> /dev/null || return 1 ;;
        Ed) cp "$1" "$work/signed" ;;
        *) return 1 ;;
    esac
    for key in $KEYS; do
        printf '%s\n' "$key" | base64 -d > "$work/key" 2> /dev/null || continue
        [ "$(wc -c < "$work/key" | tr -d ' ')" = 42 ] || continue
        # The header of an Ed25519 key in DER (RFC 8410).
        { printf '\060\052\060\005\006\003\053\145\160\003\041\000'; tail -c 32 "$work/key"; } > "$work/key.der"
        if openssl pkeyutl -verify -pubin -keyform DER -inkey "$work/key.der" -rawin -in "$work/signed" \
            -sigfile "$work/signature.raw" > /dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

# Returns the rest of the line of the manifest that begins with $1.
said() { sed -n "s/^$1 //p" "$work/latest.txt" | head -n 1; }

install_program() {
    file="$1-$machine-linux.gz"
    line=$(said "file $file")
    [ -n "$line" ] || fail "version $version has no $file"
    bytes=${line%% *}
    hash=$(printf '%s\n' "$line" | cut -d ' ' -f 2)
    echo "Downloading $1 $version …" >&2
    fetch "$version/$file" "$work/$file"
    [ "$(wc -c < "$work/$file" | tr -d ' ')" = "$bytes" ] || fail "$file does not have the signed size"
    found=$(sha256sum "$work/$file" | cut -d ' ' -f 1)
    [ "$found" = "$hash" ] || fail "$file has the SHA-256 $found, and the signed one is $hash"
    mkdir -p "$folder" || fail "cannot create $folder"
    # In the same folder, so that it is put in place at once: at any instant there is the old or the new program.
    new=$(mktemp "$folder/.pml-install.XXXXXX") || fail "cannot write to $folder"
    if ! { gzip -dc "$work/$file" > "$new" && chmod 755 "$new"; }; then
        rm -f "$new"
        fail "cannot unpack $file into $folder"
    fi
    says=$("$new" --version 2> /dev/null) || says='nothing'
    if [ "$says" != "$1 $version" ]; then
        rm -f "$new"
        fail "the new program does not work here: it says '$says'" "Is this an older system? See docs/install.md."
    fi
    mv -f "$new" "$folder/$1" || fail "cannot replace $folder/$1"
    echo "Installed $1 $version as $folder/$1" >&2
}

main() {
    case $URL in '' | @*) fail "this copy does not know where releases are" "Set PML_RELEASE_URL." ;; esac
    case $KEYS in '' | @*) fail "this copy does not know whose signatures to trust" "Set PML_RELEASE_KEY." ;; esac
    URL=${URL%/}
    [ "$(uname -s)" = Linux ] || fail "pml runs on Linux only; this is $(uname -s)"
    case $(uname -m) in
        x86_64 | amd64) machine=x86_64 ;;
        aarch64 | arm64) machine=aarch64 ;;
        *) fail "there is no release for $(uname -m)" ;;
    esac
    folder=${PML_INSTALL_DIR:-"${HOME:?HOME is not set}/.local/bin"}
    for tool in sha256sum gzip mktemp sed cut base64; do
        has "$tool" || fail "$tool is not installed"
    done
    for program in "${@:-pml}"; do
        case $program in pml | pml-server) ;; *) fail "there is no program $program" ;; esac
    done
    work=$(mktemp -d) || fail "cannot create a temporary folder"
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    fetch latest.txt "$work/latest.txt"
    fetch latest.txt.minisig "$work/latest.txt.minisig"
    verify "$work/latest.txt" || fail "the signature of $URL/latest.txt is not valid for a trusted key"
    [ "$(head -n 1 "$work/latest.txt")" = 'pml-release 1' ] || fail "$URL/latest.txt has another form"
    version=$(said version)
    case $version in '' | *[!0-9.]*) fail "$URL/latest.txt has no version" ;; esac
    # Times of this form are in order as texts.
    expr "x$(said expires)" \> "x$(date -u +%Y-%m-%dT%H:%M:%SZ)" > /dev/null ||
        fail "the release's statement of what is newest expired on $(said expires)" "Is this machine's clock right?"
    for program in "${@:-pml}"; do install_program "$program"; done
    case ":$PATH:" in
        *":$folder:"*) ;;
        *) echo "Add it to your PATH:  export PATH=\"$folder:\$PATH\"" >&2 ;;
    esac
    [ "${1:-pml}" != pml ] || echo "Next, in your project's folder:  pml init" >&2
}

main "$@"
exit 0
}
