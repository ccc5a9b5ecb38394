#!/bin/sh
# Take the node container and its volumes away, and all that we keep of it. Gone already: nothing to do.
# Usage: sh -s
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
log=$state/make.log
if [ -f "$state/environment" ] && [ -f "$source/Makefile" ] && [ -f "$overlay/compose.yaml" ]; then
    run_make down-v >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        exit 1
    }
fi
# What a run left that was interrupted before there was a Makefile to ask.
docker rm --force "$container" >/dev/null 2>&1 || true
docker volume ls --quiet --filter label=com.docker.compose.project=usernetes | while IFS= read -r volume; do
    docker volume rm --force "$volume" >/dev/null
done
rm -rf "$state"
