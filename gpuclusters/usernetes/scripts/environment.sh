# shellcheck shell=sh
# Sent before every script of this folder: where things are, as the account that owns the node.
# A shell that no login started has neither of these, and there is no telling what ~/.bashrc says.
set -eu
umask 077
LC_ALL=C
export LC_ALL
XDG_RUNTIME_DIR=/run/user/$(id -u)
DOCKER_HOST=unix://$XDG_RUNTIME_DIR/docker.sock
export XDG_RUNTIME_DIR DOCKER_HOST
# Of a login that had another daemon in mind.
unset DOCKER_CONTEXT DOCKER_TLS_VERIFY DOCKER_CERT_PATH || true

state=$HOME/.local/share/gpu-clusters/usernetes
source=$state/source
overlay=$state/overlay
container=usernetes-node

# in_node COMMAND...: run it in the node container.
in_node() {
    docker exec "$container" "$@" </dev/null
}

# mark NAME TEXT: remember something, whole or not at all.
mark() {
    mkdir -p "$state/marks"
    printf '%s\n' "$2" >"$state/marks/.$1.new"
    sync "$state/marks/.$1.new"
    mv -f "$state/marks/.$1.new" "$state/marks/$1"
}

# content FOLDER: one digest over all files that upstream brought, without the one that lets a worker join.
content() {
    (cd "$1" && find . -type f ! -path ./join-command -print0 | sort -z |
        xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1)
}

# run_make TARGET: one target of upstream's Makefile with the variables of the file `environment`, no other.
run_make() {
    while IFS= read -r line; do
        export "${line?}"
    done <"$state/environment"
    GPU_OVERLAY=$overlay
    COMPOSE="docker compose -f docker-compose.yaml -f $overlay/compose.yaml"
    export GPU_OVERLAY COMPOSE
    make --no-print-directory -C "$source" "$1" </dev/null
}
