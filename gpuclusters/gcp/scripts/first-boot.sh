#!/bin/sh
# At every boot: what a kernel forgets. At the first boot of a machine that was made from a saved image: what
# belongs to the machine that the image was taken from. Run as root by gpu-clusters-first-boot.service.
# Usage: first-boot.sh USER
#   USER  the account that runs rootless containers; nothing of it is touched if it does not exist
# GPU_CLUSTERS_ROOT is put before every path, for tests.
set -eu
LC_ALL=C
export LC_ALL

user=$1
root=${GPU_CLUSTERS_ROOT:-}
state=$root/var/lib/gpu-clusters
metadata=http://metadata.google.internal/computeMetadata/v1/instance/id

# Not persisted by images that load them by hand; a kernel that has them built in says nothing.
for module in br_netfilter vxlan ip_tables ip6_tables iptable_nat ip6table_nat; do
    modprobe --quiet "$module" || echo "first-boot: no kernel module $module" >&2
done

id=$(curl --silent --show-error --fail --max-time 10 --retry 5 --retry-connrefused \
    --header 'Metadata-Flavor: Google' "$metadata")
noted=$(cat "$state/instance-id" 2>/dev/null || true)
if [ "$id" = "$noted" ]; then
    exit 0
fi

# The node of the other machine: its certificates, its addresses, the UUIDs of its GPUs. Its volumes outlive
# its image, so they go with it.
home=$(getent passwd "$user" | cut -d: -f6 || true)
node=$home/.local/share/gpu-clusters/usernetes
if [ -d "$root$node" ]; then
    run=/run/user/$(id -u "$user")
    runuser -u "$user" -- env "XDG_RUNTIME_DIR=$run" "DOCKER_HOST=unix://$run/docker.sock" sh -c '
        docker rm --force usernetes-node
        docker volume ls --quiet --filter label=com.docker.compose.project=usernetes |
            xargs --no-run-if-empty docker volume rm --force' ||
        echo "first-boot: the old node was not running" >&2
    rm -rf "$root$node"
fi
rm -rf "$root/etc/rancher/node/password"

# Specifications name GPUs by UUID, and these are other GPUs.
rm -f "$root/etc/cdi/nvidia.yaml" "$root/var/run/cdi/nvidia.yaml"
if command -v nvidia-ctk >/dev/null; then
    if systemctl cat nvidia-cdi-refresh.service >/dev/null 2>&1; then
        systemctl restart nvidia-cdi-refresh.service
    else
        mkdir -p "$root/etc/cdi"
        nvidia-ctk cdi generate --output="$root/etc/cdi/nvidia.yaml" --device-name-strategy=uuid
    fi
    # A directory that is made after rootless Docker started is not seen by it.
    if [ -n "$home" ] && systemctl --user -M "$user@" cat docker.service >/dev/null 2>&1; then
        systemctl --user -M "$user@" restart docker.service
    fi
fi

# Last: an interrupted run is done again.
mkdir -p "$state"
printf '%s\n' "$id" >"$state/instance-id.new"
mv "$state/instance-id.new" "$state/instance-id"
