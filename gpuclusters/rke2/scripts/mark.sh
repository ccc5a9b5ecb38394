#!/bin/sh
# Remember something of this host's RKE2 beside it: who began, and with what it has joined.
# Usage: sh -s -- owner|applied TEXT
set -eu
umask 077
state=/var/lib/gpu-clusters/rke2
name=$1 text=$2
case $name in
owner | applied) ;;
*)
    echo "usage: mark.sh owner|applied TEXT" >&2
    exit 64
    ;;
esac
mkdir -p "$state"
if [ "$name" = owner ]; then
    # What is begun now is not finished.
    rm -f "$state/applied"
fi
printf '%s\n' "$text" >"$state/.$name.new"
sync "$state/.$name.new"
mv -f "$state/.$name.new" "$state/$name"
