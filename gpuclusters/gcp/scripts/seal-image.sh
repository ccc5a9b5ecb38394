#!/bin/sh
# Make a machine ready to be saved as an image: take out what is its own. Run as root, as the last command on
# it; it is of no use as a node afterwards. The driver, the container engine and pulled packages stay.
# Usage: seal-image.sh USER
# GPU_CLUSTERS_ROOT is put before every path, for tests.
set -eu
LC_ALL=C
export LC_ALL

user=$1
root=${GPU_CLUSTERS_ROOT:-}

if [ -n "$(find "$root/var/lib/rancher/rke2" -maxdepth 1 -name server -o -maxdepth 1 -name agent 2>/dev/null)" ]; then
    echo "seal-image: this machine is a node of an RKE2 cluster: remove it from the cluster first" >&2
    exit 65
fi
# The node of usernetes, with its volumes: certificates, addresses, UUIDs of GPUs.
node=$(getent passwd "$user" | cut -d: -f6)/.local/share/gpu-clusters/usernetes
if [ -d "$root$node" ]; then
    run=/run/user/$(id -u "$user")
    runuser -u "$user" -- env "XDG_RUNTIME_DIR=$run" "DOCKER_HOST=unix://$run/docker.sock" sh -c '
        docker rm --force usernetes-node
        docker volume ls --quiet --filter label=com.docker.compose.project=usernetes |
            xargs --no-run-if-empty docker volume rm --force'
    rm -rf "$root$node"
fi
rm -f "$root/etc/cdi/nvidia.yaml" "$root/var/run/cdi/nvidia.yaml"
rm -f "$root/var/lib/gpu-clusters/instance-id"
rm -f "$root"/etc/ssh/ssh_host_*_key "$root"/etc/ssh/ssh_host_*_key.pub
for home in root "home/$user"; do
    rm -f "$root/$home/.ssh/authorized_keys" "$root/$home/.bash_history"
done
: >"$root/etc/machine-id"
# cloud-init carries out the next machine's data as on a new one.
cloud-init clean --logs --seed
sync
echo "seal-image: done; stop the machine and make the image now"
