#!/bin/sh
# Let the node join: the file with the token is here for as long as that takes, for this account alone.
# It comes in base64 on the standard input of `main`; upstream's target runs it in the node.
# Usage: sh -s
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
main() {
    file=$source/join-command log=$state/make.log
    trap 'rm -f "$file"' EXIT
    trap 'exit 129' HUP
    trap 'exit 143' TERM
    base64 -d >"$file"
    chmod 0600 "$file"
    if ! run_make kubeadm-join >"$log" 2>&1; then
        tail -n 40 "$log" | tr -d '\r' | grep -v '^ *$' | tail -n 20 >&2
        exit 1
    fi
}
