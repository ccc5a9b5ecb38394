#!/bin/sh
# Unpack a release that fetch.sh brought: programs and units below /usr/local, images where RKE2 imports
# them. The same files as RKE2's own installer of the method "tar" puts there; the service is not touched,
# so a cluster that runs goes on with the old program until it is restarted (unlinked first: a program that
# runs cannot be written over).
# Usage: sh -s -- VERSION cis|none [IMAGES...]
set -eu
LC_ALL=C
export LC_ALL
version=$1 profile=$2
shift 2
release=/var/lib/gpu-clusters/rke2/releases/$version
images=/var/lib/rancher/rke2/agent/images

mkdir -p /usr/local/lib/systemd/system
if [ ! -w /usr/local ]; then
    echo "/usr/local cannot be written; RKE2 is installed there" >&2
    exit 4
fi
tar --extract --gzip --file "$release/rke2.linux-amd64.tar.gz" --directory /usr/local \
    --no-same-owner --unlink-first
if command -v restorecon >/dev/null 2>&1; then
    restorecon -R -i /usr/local/bin/rke2 /usr/local/lib/systemd/system || true
fi
if [ $# -gt 0 ]; then
    mkdir -p "$images"
    for name; do
        cp "$release/$name" "$images/.$name.new"
        mv -f "$images/.$name.new" "$images/$name"
    done
fi
if [ "$profile" = cis ]; then
    cp /usr/local/share/rke2/rke2-cis-sysctl.conf /etc/sysctl.d/60-rke2-cis.conf
fi
systemctl daemon-reload
# Of releases that were brought only the one in use is kept.
for old in /var/lib/gpu-clusters/rke2/releases/*; do
    if [ "$old" != "$release" ]; then
        rm -rf "$old"
    fi
done
