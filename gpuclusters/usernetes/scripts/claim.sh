#!/bin/sh
# Remember that this host's node is ours and what it is made of, before anything else is changed.
# Usage: sh -s -- OWNER MACHINE RELEASE HOST_IP VARIABLE=VALUE...
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
mkdir -p "$state/marks"
mark machine "$2"
mark release "$3"
mark host-ip "$4"
mark owner "$1"
shift 4
printf '%s\n' "$@" >"$state/.environment.new"
mv -f "$state/.environment.new" "$state/environment"
