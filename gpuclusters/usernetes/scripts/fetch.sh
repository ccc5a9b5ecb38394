#!/bin/sh
# Bring the sources of one tag to this host and compare the archive with its digest; then they lie in place of
# those of another tag.
# Usage: sh -s -- LOCATION SHA256       LOCATION: an address, or the path of the archive on this host
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
location=$1 wanted=$2
mkdir -p "$state"
cd "$state"
rm -rf source.new source.tar.gz.new
case $location in
/*)
    [ -f "$location" ] || {
        echo "$location is not there; copy the archive of the tag to this path of the host" >&2
        exit 5
    }
    cp "$location" source.tar.gz.new
    ;;
*)
    curl --fail --silent --show-error --location --retry 3 --connect-timeout 15 \
        --output source.tar.gz.new "$location" || {
        echo "$location could not be downloaded; check the tag and the proxy, or bring the archive yourself (a path on the host as the address)" >&2
        exit 5
    }
    ;;
esac
sum=$(sha256sum <source.tar.gz.new)
if [ "${sum%% *}" != "$wanted" ]; then
    rm -f source.tar.gz.new
    echo "the archive of Usernetes has the sha256 ${sum%% *} and must have $wanted; nothing was unpacked: find out who changed it, or correct the digest" >&2
    exit 6
fi
# They become part of the image: with the modes that upstream gives them. The folder around them is the account's.
umask 022
mkdir source.new
tar --extract --gzip --file source.tar.gz.new --directory source.new --strip-components=1 --no-same-owner
rm -f source.tar.gz.new
[ -f source.new/Makefile ] || {
    echo "the archive has no Makefile in its first folder; it is none of Usernetes" >&2
    exit 6
}
# Scripts in it are bind-mounted into the node and run there.
chmod -R go-w source.new
mark content "$(content source.new)"
rm -rf source
mv source.new source
