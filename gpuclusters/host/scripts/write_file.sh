#!/bin/sh
# Write one file atomically: a temporary file in the same folder, made durable, then renamed.
# The content comes in base64 on the standard input of `main`; prints the sha256 of the file.
# Usage: sh -s -- PATH MODE USER:GROUP
set -eu
umask 077
LC_ALL=C
export LC_ALL

main() {
    path=$1 mode=$2 owner=$3
    folder=$(dirname -- "$path")
    if [ -d "$path" ]; then
        echo "$path is a folder" >&2
        exit 4
    fi
    # Folders are for everybody to enter, like the ones that packages make; the file has its mode.
    (umask 022 && mkdir -p -- "$folder")
    # What an interrupted earlier run left behind is worth nothing.
    find "$folder" -maxdepth 1 -name ".$(basename -- "$path").gpu-clusters.*" -mmin +60 \
        -exec rm -f -- {} +
    temporary=$(mktemp -- "$folder/.$(basename -- "$path").gpu-clusters.XXXXXX")
    trap 'rm -f -- "$temporary"' EXIT
    trap 'exit 129' HUP
    trap 'exit 143' TERM
    base64 -d >"$temporary"
    chown -- "$owner" "$temporary"
    chmod -- "$mode" "$temporary"
    sync -- "$temporary"
    mv -f -- "$temporary" "$path"
    sync -- "$folder"
    sum=$(sha256sum <"$path")
    printf '%s\n' "${sum%% *}"
}
