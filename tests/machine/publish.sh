#!/bin/sh
# A package in a repository on the machine itself, the only one that it knows then.
# Usage: sh -s -- NAME VERSION     with its files, if any, in /tmp/package
set -eu
at=/srv/repository
mkdir -p "$at" /tmp/package/DEBIAN
cd "$at"
printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: lab\nDescription: lab\n' "$1" "$2" \
    >/tmp/package/DEBIAN/control
dpkg-deb -b /tmp/package "$1_$2.deb" >/dev/null
rm -r /tmp/package
for one in *.deb; do
    dpkg-deb -f "$one"
    printf 'Filename: ./%s\nSize: %s\n' "$one" "$(stat -c %s "$one")"
    printf 'SHA256: %s\n\n' "$(sha256sum <"$one" | cut -d' ' -f1)"
done >Packages
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
echo "deb [trusted=yes] file:$at ./" >/etc/apt/sources.list
