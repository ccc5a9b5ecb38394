#!/bin/sh
# Runs inside the service VM: keeps a fabric manager of another version from touching the switches.
# Usage: fabric-manager.sh check VERSION     before every start of the service (ExecStartPre)
#        fabric-manager.sh start VERSION     once, when cloud-init has written the configuration
# What it finds it says on the serial console too: the host reads it there without logging in.
set -eu
LC_ALL=C
export LC_ALL

verb=${1:?verb} wanted=${2:?version}
console=/dev/ttyS0
unit=nvidia-fabricmanager.service

say() {
    echo "gpu-clusters: fabric-manager $*"
    if [ -w "$console" ]; then
        echo "gpu-clusters: fabric-manager $*" >"$console" || true
    fi
}

# Prints "Fabric Manager version is : 595.58.03".
installed() {
    nv-fabricmanager --version 2>/dev/null | sed -n 's/^.*version is *: *\([0-9.]*\).*$/\1/p'
}

found=$(installed)
if [ "$found" != "$wanted" ]; then
    say "version=${found:-none} wanted=$wanted"
    if [ "$verb" = start ]; then
        systemctl disable --now "$unit" || true
    fi
    exit 1
fi
say "version=$found"
[ "$verb" = start ] || exit 0

systemctl daemon-reload
systemctl enable "$unit"
systemctl start "$unit" || true
say "version=$found state=$(systemctl is-active "$unit" || true)"
