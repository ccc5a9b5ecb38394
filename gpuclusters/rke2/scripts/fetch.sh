#!/bin/sh
# Bring the artifacts of one release to this host and compare each with its digest. Nothing that runs is
# touched: they lie beside it until install.sh unpacks them. What is there and right is not brought again.
# Usage: sh -s -- VERSION download|folder LOCATION SHA256 [IMAGES...]
#   SHA256 is that of sha256sum-amd64.txt, the release's own list, which then vouches for everything else.
set -eu
umask 077
LC_ALL=C
export LC_ALL
version=$1 source=$2 location=$3 checksum=$4
shift 4
list=sha256sum-amd64.txt
target=/var/lib/gpu-clusters/rke2/releases/$version
mkdir -p "$target"
cd "$target"

digest() {
    sum=$(sha256sum <"$1")
    printf '%s' "${sum%% *}"
}

# bring NAME DIGEST: download or copy one file, whole or not at all.
bring() {
    if [ -f "$1" ] && [ "$(digest "$1")" = "$2" ]; then
        return 0
    fi
    rm -f "$1.new"
    case $source in
    download)
        # A "+" in a version is "%2B" in an address.
        address=$location/$(printf '%s' "$version" | sed 's/+/%2B/g')/$1
        curl --fail --silent --show-error --location --retry 3 --connect-timeout 15 \
            --output "$1.new" "$address" || {
            echo "$address could not be downloaded; check the address, the proxy in /etc/environment, or bring the files yourself (artifacts.source: folder)" >&2
            exit 5
        }
        ;;
    folder)
        [ -f "$location/$1" ] || {
            echo "$location/$1 is not there; copy the release's files into this folder of the host" >&2
            exit 5
        }
        cp "$location/$1" "$1.new"
        ;;
    *)
        echo "usage: fetch.sh VERSION download|folder LOCATION SHA256 [IMAGES...]" >&2
        exit 64
        ;;
    esac
    found=$(digest "$1.new")
    if [ "$found" != "$2" ]; then
        rm -f "$1.new"
        echo "$1 has the sha256 $found and must have $2; nothing was installed: find out who changed it, or correct artifacts.checksum" >&2
        exit 6
    fi
    mv -f "$1.new" "$1"
}

bring "$list" "$checksum"
for name in rke2.linux-amd64.tar.gz "$@"; do
    # "<digest>  <name>", as sha256sum writes it
    wanted=$(awk -v name="$name" '$2 == name || $2 == "*" name { print $1; exit }' "$list")
    [ -n "$wanted" ] || {
        echo "$list of $version does not name $name; see which files the release has" >&2
        exit 6
    }
    bring "$name" "$wanted"
done
