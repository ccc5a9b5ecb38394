#!/bin/sh
# Note beside the driver that it is as it was wanted.
# Usage: sh -s -- DIGEST
set -eu
umask 077
state=/var/lib/gpu-clusters/driver
mkdir -p "$state"
printf '%s\n' "$1" >"$state/.applied.new"
sync "$state/.applied.new"
mv -f "$state/.applied.new" "$state/applied"
