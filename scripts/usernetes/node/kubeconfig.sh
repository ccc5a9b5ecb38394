#!/bin/sh
# Print the admin kubeconfig, as upstream's target writes it: with 127.0.0.1 in place of the node's name.
# Usage: sh -s
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
run_make kubeconfig >"$state/make.log" 2>&1 || {
    tail -n 5 "$state/make.log" >&2
    exit 1
}
chmod 0600 "$source/kubeconfig"
cat "$source/kubeconfig"
