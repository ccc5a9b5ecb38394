#!/bin/sh
# How far a unit is: "<state> <restarts>", then what it has said since it was started.
# Usage: sh -s -- UNIT CURSOR      CURSOR: what start.sh printed; empty for all of its journal
set -eu
LC_ALL=C
export LC_ALL
unit=$1 cursor=$2
restarts=$(systemctl show --property=NRestarts --value "$unit" 2>/dev/null || echo 0)
printf '%s %s\n' "$(systemctl is-active "$unit" 2>/dev/null || true)" "${restarts:-0}"
set -- -u "$unit" -n 60 -o cat --no-pager
if [ -n "$cursor" ]; then
    set -- "$@" "--after-cursor=$cursor"
fi
journalctl "$@" 2>/dev/null || true
