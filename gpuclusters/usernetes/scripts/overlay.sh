#!/bin/sh
# Write one file of our overlay; its content comes in base64 on the standard input of `main`.
# Usage: sh -s -- NAME
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
main() {
    mkdir -p "$overlay"
    base64 -d >"$overlay/.$1.new"
    # Read by root of the image while it is built, which is this account here.
    chmod 0644 "$overlay/.$1.new"
    mv -f "$overlay/.$1.new" "$overlay/$1"
}
