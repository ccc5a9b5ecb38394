#!/bin/sh
# How far a unit is: "<state> <restarts>", then its last lines in the journal since a moment.
# Usage: sh -s -- UNIT "YYYY-MM-DD HH:MM:SS"
set -eu
LC_ALL=C
export LC_ALL
unit=$1 since=$2
restarts=$(systemctl show --property=NRestarts --value "$unit" 2>/dev/null || echo 0)
printf '%s %s\n' "$(systemctl is-active "$unit" 2>/dev/null || true)" "${restarts:-0}"
journalctl --unit "$unit" --since "$since" --lines 60 --output cat --no-pager 2>/dev/null || true
