#!/bin/sh
# Remember something of the node, or forget it.
# Usage: sh -s -- NAME [TEXT]
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
case $1 in
began | joined) ;;
*)
    echo "usage: mark.sh began|joined [TEXT]" >&2
    exit 64
    ;;
esac
if [ $# -gt 1 ]; then mark "$1" "$2"; else rm -f "$state/marks/$1"; fi
