#!/bin/sh
# Makes the container runtime and the kubelet read their drop-ins.
# Arguments: the systemd units, in the order in which they are restarted.
# Running containers are not touched: containerd's shims and kata VMs live on over a restart.
set -eu

[ $# -gt 0 ] || { echo "usage: reload-runtime.sh UNIT..." >&2; exit 64; }

fail() { echo "error: $*" >&2; exit 1; }

systemctl daemon-reload
for unit in "$@"; do
  # A unit that does not run yet reads the drop-in when it starts; one that failed over an earlier drop-in is tried again.
  if [ "$(systemctl is-enabled "$unit" 2>/dev/null)" != enabled ]; then
    systemctl try-restart "$unit"
    continue
  fi
  systemctl reset-failed "$unit"
  systemctl restart "$unit"
  # Without a notification systemd calls it active before it has read anything, and may try again.
  [ "$(systemctl show --property=Type --value "$unit")" = notify ] || sleep 2
  { systemctl is-active --quiet "$unit" && [ "$(systemctl show --property=NRestarts --value "$unit")" = 0 ]; } ||
    fail "$unit is enabled but does not run after the restart; see 'journalctl -u $unit'"
  # A drop-in that nothing includes would be ignored in silence.
  pid=$(systemctl show --property=MainPID --value "$unit")
  started=$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") || continue
  case $unit in
    kubelet.service)
      echo "$started" | grep -Eq -- '--config-dir[= ]/etc/kubernetes/kubelet\.conf\.d' ||
        fail "the kubelet reads no drop-ins; start it with --config-dir=/etc/kubernetes/kubelet.conf.d" ;;
    containerd.service)
      config=$(echo "$started" | sed -nE 's/.* (-c|--config)[= ]([^ ]+).*/\2/p')
      config=${config:-/etc/containerd/config.toml}
      # Its own default names them too, but without this line in the file it does not read them.
      tr '\n' ' ' 2>/dev/null <"$config" | grep -Eq 'imports *= *\[[^]]*/etc/containerd/conf\.d/' ||
        fail "containerd reads no drop-ins; write imports = [\"/etc/containerd/conf.d/*.toml\"] as a top line of $config" ;;
  esac
done
