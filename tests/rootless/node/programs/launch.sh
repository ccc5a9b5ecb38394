#!/bin/sh
# Start the node's programs: as the account, in the cgroups that are its own, in namespaces by rootlesskit.
# Runs as root of the host; what systemd and rootless Docker do there.
# Usage: launch.sh ACCOUNT DATA "GROUP..." PORT MTU
#        DATA: folder of what the node keeps; GROUP: cgroup folder of the account; PORT: of the kubelet
set -eu
account=$1 data=$2 groups=$3 port=$4 mtu=$5
for group in $groups; do
    echo $$ >"$group/cgroup.procs"
done
evacuate=""
# Version 2 gives controllers to groups below only where no process is in the group itself.
[ ! -e /sys/fs/cgroup/cgroup.controllers ] || evacuate=--evacuate-cgroup2=init
home=$(getent passwd "$account" | cut -d: -f6)
state=/run/user/$(id -u "$account")/usernetes-node
rm -rf "$state"
# The machine's loopback is not closed to the node: there is the API server that it joins.
# shellcheck disable=SC2086 # nothing, or one word
exec env -i PATH="$PATH" HOME="$home" LC_ALL=C XDG_RUNTIME_DIR="${state%/*}" \
    setpriv --reuid "$account" --regid "$account" --init-groups \
    rootlesskit --state-dir="$state" --net=slirp4netns --mtu="$mtu" --port-driver=builtin \
    --publish="127.0.0.1:$port:$port/tcp" --copy-up=/etc --copy-up=/run --copy-up=/var/lib --copy-up=/var/log \
    --pidns --cgroupns --utsns --ipcns $evacuate \
    sh /usr/local/libexec/usernetes-node/node.sh "$data"
