#!/bin/sh
# Note that a host has passed its gates with this.
# Usage: sh -s -- DIGEST
set -eu
umask 022
state=/var/lib/gpu-clusters/usernetes
mkdir -p "$state"
printf '%s\n' "$1" >"$state/.passed.new"
sync "$state/.passed.new"
mv -f "$state/.passed.new" "$state/passed"
