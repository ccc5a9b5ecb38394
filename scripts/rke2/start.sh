#!/bin/sh
# Enable a unit of RKE2 and start it again, without waiting: its start never times out (TimeoutStartSec=0),
# so a bad join would hold this command for ever. Prints after which entry of its journal to read.
# Usage: sh -s -- UNIT
set -eu
LC_ALL=C
export LC_ALL
unit=$1

# What the files in /etc/sysctl.d say has to be in force before RKE2 checks it.
for file in /etc/sysctl.d/60-rke2-cis.conf /etc/sysctl.d/90-gpu-clusters-rke2.conf; do
    if [ -f "$file" ]; then
        sysctl -q -p "$file" >/dev/null
    fi
done
if [ "$(systemctl is-active NetworkManager.service 2>/dev/null || true)" = active ]; then
    systemctl reload NetworkManager.service
fi
systemctl enable --quiet "$unit"
journalctl -u "$unit" -n 1 -q --show-cursor --no-pager 2>/dev/null | sed -n 's/^-- cursor: //p'
systemctl reset-failed "$unit" 2>/dev/null || true
systemctl restart --no-block "$unit"
