#!/bin/sh
# The node from inside, where an image of Usernetes has systemd: its folders, its unit of GPUs, containerd, kubelet.
# Root of the account's namespaces. It lasts until it is killed.
# Usage: node.sh DATA      DATA/etc/* lie over /etc/*, DATA/var-lib and DATA/var-log over /var/lib and /var/log
set -eu
data=$1
PATH=/usr/local/libexec/usernetes-node:$PATH
HOME=/root
export PATH HOME
unset XDG_RUNTIME_DIR
# These were links to folders of the host's root after the copy.
mount -t tmpfs -o mode=0755 run /run
mount --bind "$data/var-lib" /var/lib
mount --bind "$data/var-log" /var/log
for source in "$data"/etc/*; do
    name=${source##*/}
    rm -rf "/etc/${name:?}"
    mkdir "/etc/$name"
    mount --bind "$source" "/etc/$name"
done
# What a kubelet mounts must reach the containers that ask for it.
mount --make-rshared /
echo 1 >/proc/sys/net/ipv4/ip_forward
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    tr " " "\n" </sys/fs/cgroup/cgroup.controllers | while read -r controller; do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control || true
    done
fi
mkdir -p /run/units

# Pods find the API server by its Service's address, and nothing else outside of the node.
read -r address port <"$data/api-server"
iptables -t nat -A PREROUTING -d 10.96.0.1 -p tcp --dport 443 -j DNAT --to-destination "$address:$port"
iptables -t nat -A POSTROUTING -o tap0 -j MASQUERADE
iptables -A FORWARD -o tap0 -d "$address" -p tcp --dport "$port" -j ACCEPT
iptables -A FORWARD -o tap0 -j REJECT

# unit NAME COMMAND...: run it, and again when it ended, until somebody stops it.
unit() {
    name=$1
    shift
    while :; do
        if [ -e "/run/units/$name.stopped" ]; then
            sleep 0.1
            continue
        fi
        "$@" >>"/var/log/$name.log" 2>&1 &
        echo $! >"/run/units/$name.pid"
        wait $! || true
        rm -f "/run/units/$name.pid"
        sleep 0.2
    done
}

# The order of the unit file: before containerd, and containerd starts without GPUs too.
systemctl start usernetes-gpus.service || true
unit containerd containerd &
unit kubelet kubelet --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \
    --root-dir=/var/lib/kubelet --cert-dir=/var/lib/kubelet/pki --hostname-override="$(cat "$data/name")" \
    --cloud-provider=external &
wait
