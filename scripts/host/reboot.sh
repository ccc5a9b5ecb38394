#!/bin/sh
# Reboot, unless a virtual machine has a passed-through device.      Exit: 6 in use, 7 cannot tell.
set -eu
LC_ALL=C
export LC_ALL
set --
for node in /dev/vfio/* /dev/vfio/devices/*; do
    [ ! -c "$node" ] && [ ! -f "$node" ] || set -- "$@" "$node"
done
if [ $# -gt 0 ]; then
    command -v fuser >/dev/null 2>&1 || exit 7
    users=$(fuser "$@" 2>/dev/null || true)
    if [ -n "$users" ]; then
        echo "in use by processes $users" >&2
        exit 6
    fi
fi
sync
systemctl reboot
