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
    if users=$(fuser "$@" 2>/dev/null); then
        echo "in use by processes $users" >&2
        exit 6
    fi
    # It answers 1 both for "nobody" and for "could not find out"; the second comes with words.
    [ -z "$(fuser "$@" 2>&1 >/dev/null | sed -e '/^Cannot /d')" ] || exit 7
fi
sync
systemctl reboot
