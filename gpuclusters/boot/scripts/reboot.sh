#!/bin/sh
# Reboot, unless a virtual machine has a passed-through device. Sent after vfio_users.sh. Exit: 6 in use, 7 cannot tell.
set -eu
LC_ALL=C
export LC_ALL
set --
# The control node `vfio` is on every machine; whoever has a device has its group or its own node too.
for node in /dev/vfio/* /dev/vfio/devices/*; do
    [ "$node" = /dev/vfio/vfio ] || { [ ! -c "$node" ] && [ ! -f "$node" ]; } || set -- "$@" "$node"
done
if [ $# -gt 0 ]; then
    command -v fuser >/dev/null 2>&1 || exit 7
    users=$(holders_of "$@" 2>/dev/null) || exit 7
    if [ -n "$users" ]; then
        # shellcheck disable=SC2086 # process ids, one per line
        echo "in use by processes" $users >&2
        exit 6
    fi
fi
sync
systemctl reboot
