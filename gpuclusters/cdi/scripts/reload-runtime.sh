#!/bin/sh
# Makes the container runtime and the kubelet read their drop-ins.
# Arguments: the systemd units, in the order in which they are restarted.
# Running containers are not touched: containerd's shims and kata VMs live on over a restart.
set -eu

[ $# -gt 0 ] || { echo "usage: reload-runtime.sh UNIT..." >&2; exit 64; }

systemctl daemon-reload
for unit in "$@"; do
  # A unit that does not run yet reads the drop-in when it starts.
  systemctl try-restart "$unit"
  if [ "$(systemctl is-enabled "$unit" 2>/dev/null)" = enabled ] && ! systemctl is-active --quiet "$unit"; then
    echo "error: $unit is enabled but does not run after the restart; see 'journalctl -u $unit'" >&2
    exit 1
  fi
done
