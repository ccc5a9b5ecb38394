#!/bin/sh
# Write several of root's files, each atomically. Standard input of `main`, in base64: lines "PATH CONTENT-IN-BASE64".
# Usage: sh -s --
set -eu
umask 022
LC_ALL=C
export LC_ALL

main() {
    base64 -d | while read -r path content; do
        folder=${path%/*}
        mkdir -p -- "$folder"
        printf '%s' "$content" | base64 -d >"$folder/.gpu-clusters.new"
        chmod 0644 "$folder/.gpu-clusters.new"
        sync -- "$folder/.gpu-clusters.new"
        mv -f -- "$folder/.gpu-clusters.new" "$path"
    done
}
