#!/bin/sh
# Docker's place on the host, for the scripts that look into the node: one container, the node, that is always there.
# It runs as the account. What makes or removes containers and images is refused: there are none.
set -eu
pid=$(cat "$XDG_RUNTIME_DIR/usernetes-node/child_pid" 2>/dev/null || true)
[ -z "$pid" ] || [ -d "/proc/$pid" ] || pid=""
case "$*" in
"exec usernetes-node "*)
    shift 2
    [ -n "$pid" ] || {
        echo "Error response from daemon: container usernetes-node is not running" >&2
        exit 1
    }
    exec nsenter --target "$pid" --user --preserve-credentials --mount --net --pid --uts --ipc --cgroup -- \
        env -i --chdir=/ PATH="/usr/local/libexec/usernetes-node:$PATH" HOME=/root LC_ALL=C "$@"
    ;;
"version "*) echo rootlesskit ;;
"volume ls "*) echo usernetes_node-var ;;
"inspect "*" usernetes-node") if [ -n "$pid" ]; then echo "running "; else echo "exited "; fi ;;
*)
    echo "docker: this host has a node without Docker; it cannot: $*" >&2
    exit 125
    ;;
esac
