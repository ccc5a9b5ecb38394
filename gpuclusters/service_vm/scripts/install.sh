#!/bin/sh
# Writes the host's own files from the tar on the standard input of `main`, lets systemd read its units anew and
# enables those that are named. Nothing is started: the VM is started by whoever waits for it.
# Usage: sh -s -- UNIT...
set -eu
LC_ALL=C
export LC_ALL
umask 022

main() {
    work=$(mktemp -d)
    trap 'rm -rf -- "$work"' EXIT
    base64 -d | tar -x -C "$work"
    find "$work" -type f | while IFS= read -r file; do
        path=${file#"$work"}
        mkdir -p -- "$(dirname -- "$path")"
        cp -p -- "$file" "$path.gpu-clusters.new"
        chown root:root -- "$path.gpu-clusters.new"
        mv -f -- "$path.gpu-clusters.new" "$path"
    done
    systemctl daemon-reload
    for unit; do
        systemctl enable "$unit"
    done
}
