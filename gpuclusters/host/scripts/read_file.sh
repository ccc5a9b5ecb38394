#!/bin/sh
# Print one regular file: a line "mode user:group sha256", then the content.
# Usage: sh -s -- PATH          Exit: 0 printed, 3 absent, 4 not a regular file.
set -eu
LC_ALL=C
export LC_ALL
path=$1
if [ ! -e "$path" ] && [ ! -L "$path" ]; then
    exit 3
fi
if [ ! -f "$path" ]; then
    echo "$path is not a regular file" >&2
    exit 4
fi
mode=$(stat -L -c %a -- "$path")
owner=$(stat -L -c %U:%G -- "$path")
sum=$(sha256sum <"$path")
printf '%s %s %s\n' "$mode" "$owner" "${sum%% *}"
cat -- "$path"
