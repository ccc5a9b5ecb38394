#!/bin/sh
# Keep packages from being upgraded by themselves.
# Usage: sh -s -- NAME...
set -eu
umask 022
LC_ALL=C
export LC_ALL
state=/var/lib/gpu-clusters/usernetes
mkdir -p "$state"
# Noted first: what is held and not noted would stay so for ever.
{
    cat "$state/held" 2>/dev/null || true
    printf '%s\n' "$@"
} | sort -u >"$state/.held.new"
mv -f "$state/.held.new" "$state/held"
apt-mark hold "$@" >/dev/null
