#!/bin/sh
# Hold a machine, and remove its cgroups once it is gone, however it and whoever holds it came to an end.
# Usage: keep.sh GROUP... -- COMMAND...     GROUP: folder of a cgroup; COMMAND: what makes the machine
set -u
groups=""
while [ "$1" != -- ]; do
    groups="$groups $1"
    shift
done
shift
# What ends the holder must not end this before it is done. The command ends with its input.
trap : HUP INT TERM
status=0
"$@" || status=$?
for group in $groups; do
    tries=0
    # Processes that were killed leave their group a moment later.
    while [ -d "$group" ] && [ "$tries" -lt 1200 ]; do
        find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
        [ ! -d "$group" ] || sleep 0.05
        tries=$((tries + 1))
    done
done
exit "$status"
