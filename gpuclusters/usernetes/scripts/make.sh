#!/bin/sh
# Run targets of upstream's Makefile, one after the other; their last words on standard error if one fails.
# Usage: sh -s -- TARGET...
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
log=$state/make.log
cat "$source/Dockerfile" "$overlay/Dockerfile.gpu" >"$overlay/.Dockerfile.new"
mv -f "$overlay/.Dockerfile.new" "$overlay/Dockerfile"
for target; do
    if ! run_make "$target" >"$log" 2>&1; then
        # Progress of a build, colours and empty lines tell nothing.
        tail -n 60 "$log" | tr -d '\r' | sed 's/\x1b\[[0-9;]*m//g' | grep -v '^ *$' | tail -n 30 >&2
        exit 1
    fi
done
