#!/bin/sh
# Enable a unit of RKE2 and start it again, without waiting: its start never times out (TimeoutStartSec=0),
# so a bad join would hold this command for ever. Prints after which entry of its journal to read.
# Usage: sh -s -- UNIT
set -eu
LC_ALL=C
export LC_ALL
unit=$1

# What the files in /etc/sysctl.d say has to be in force before RKE2 checks it.
# All files in their order, as at a boot: one that comes later may want more than RKE2 does. A line of somebody
# else's that cannot be set is no reason to stop; RKE2 checks what it needs.
sysctl -q --system >/dev/null 2>&1 || true
if [ "$(systemctl is-active NetworkManager.service 2>/dev/null || true)" = active ]; then
    systemctl reload NetworkManager.service
fi
systemctl enable --quiet "$unit"
journalctl -u "$unit" -n 1 -q --show-cursor --no-pager 2>/dev/null | sed -n 's/^-- cursor: //p'
systemctl reset-failed "$unit" 2>/dev/null || true
systemctl restart --no-block "$unit"
