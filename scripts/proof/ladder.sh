#!/bin/sh
# Rungs 1 to 4 of the ladder on one host: print what the commands say, each after a line "== NAME STATUS".
# Changes nothing. Runs as the account that owns the rootless Docker, or as root, which becomes that account.
# Usage: sh -s -- ACCOUNT IMAGE HIGHEST     IMAGE is run with all GPUs by rung 3; HIGHEST is 1 to 4.
set -eu
LC_ALL=C
export LC_ALL
account=$1
image=$2
highest=$3

# What follows is small and is printed whole: the status comes first, so the output is kept until it is known.
section() {
    name=$1
    shift
    status=0
    text=$("$@" 2>&1 </dev/null) || status=$?
    printf '== %s %s\n%s\n' "$name" "$status" "$text"
}

# Variables of the session's login may name another daemon: both are set, as for every step on this host.
as_account() {
    id=$(id -u "$account")
    set -- env "XDG_RUNTIME_DIR=/run/user/$id" "DOCKER_HOST=unix:///run/user/$id/docker.sock" "$@"
    if [ "$(id -u)" = "$id" ]; then
        "$@"
    else
        sudo -n -u "$account" "$@"
    fi
}

module() {
    modinfo -F version nvidia 2>/dev/null && modinfo -F license nvidia 2>/dev/null
}

# The name is the compose overlay's, as for every step on the node.
in_node() {
    as_account docker exec usernetes-node nvidia-ctk cdi list
}

section nvidia-smi nvidia-smi -L
section module module
[ "$highest" -ge 2 ] || exit 0
section docker-info as_account docker info --format '{{json .}}'
[ "$highest" -ge 3 ] || exit 0
section docker-run as_account docker run --rm --network none --device nvidia.com/gpu=all "$image" nvidia-smi -L
[ "$highest" -ge 4 ] || exit 0
section node-cdi in_node
