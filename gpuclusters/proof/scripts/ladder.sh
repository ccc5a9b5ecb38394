#!/bin/sh
# Rungs 1 to 4 of the ladder on one host: print what the commands say, each after a line "== NAME STATUS".
# Changes nothing. Runs as the account that owns the rootless Docker.
# Usage: sh -s -- IMAGE HIGHEST     IMAGE is run with all GPUs by rung 3; HIGHEST is 1 to 4.
set -eu
LC_ALL=C
export LC_ALL
image=$1
highest=$2

# A shell that no login started has neither of these, and those of a login may name another daemon.
XDG_RUNTIME_DIR=/run/user/$(id -u)
DOCKER_HOST=unix://$XDG_RUNTIME_DIR/docker.sock
export XDG_RUNTIME_DIR DOCKER_HOST
unset DOCKER_CONTEXT || true

# What follows is small and is printed whole: the status comes first, so the output is kept until it is known.
section() {
    name=$1
    shift
    status=0
    text=$("$@" 2>&1 </dev/null) || status=$?
    printf '== %s %s\n%s\n' "$name" "$status" "$text"
}

module() {
    modinfo -F version nvidia 2>/dev/null && modinfo -F license nvidia 2>/dev/null
}

section nvidia-smi nvidia-smi -L
section module module
[ "$highest" -ge 2 ] || exit 0
section docker-info docker info --format '{{json .}}'
[ "$highest" -ge 3 ] || exit 0
section docker-run docker run --rm --network none --device nvidia.com/gpu=all "$image" nvidia-smi -L
[ "$highest" -ge 4 ] || exit 0
# The name is the compose overlay's, as for every step on the node.
section node-cdi docker exec usernetes-node nvidia-ctk cdi list
