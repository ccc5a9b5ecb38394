#!/bin/sh
# Set the GPUs of the node up again, and say why if that fails.
# Usage: sh -s
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
if ! in_node systemctl restart usernetes-gpus.service 2>/dev/null; then
    in_node journalctl -u usernetes-gpus.service -n 15 -o cat --no-pager >&2 || true
    exit 1
fi
