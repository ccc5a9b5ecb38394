#!/bin/sh
# Remove one file; an absent one is fine. The folder is made durable, so that it stays removed.
# Usage: sh -s -- PATH
set -eu
LC_ALL=C
export LC_ALL
path=$1
if [ -d "$path" ] && [ ! -L "$path" ]; then
    echo "$path is a folder" >&2
    exit 4
fi
folder=$(dirname -- "$path")
# With what a write left that was cut off before its end.
[ ! -d "$folder" ] || find "$folder" -maxdepth 1 -name ".$(basename -- "$path").gpu-clusters.*" -exec rm -f -- {} +
if [ -e "$path" ] || [ -L "$path" ]; then
    rm -f -- "$path"
    sync -- "$folder"
fi
