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
if [ -e "$path" ] || [ -L "$path" ]; then
    rm -f -- "$path"
    sync -- "$(dirname -- "$path")"
fi
