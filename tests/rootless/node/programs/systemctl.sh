#!/bin/sh
# systemd's place in the node: the verbs that our scripts use, for the three units that the node has.
# What was asked is noted in /run/systemctl. Units that are not here are none: stopping them is done, starting fails.
set -eu
printf '%s\n' "$*" >>/run/systemctl
verb="" names=""
for word; do
    case $word in
    -*) ;;
    *) if [ -z "$verb" ]; then verb=$word; else names="$names ${word%.service}"; fi ;;
    esac
done

running() {
    pid=$(cat "/run/units/$1.pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null
}

# As its unit file says, which is ours.
gpus() {
    command=$(sed -n -e 's/^ExecStart=//p' /usr/lib/systemd/system/usernetes-gpus.service)
    if "$command" >>/var/log/usernetes-gpus.log 2>&1 </dev/null; then
        echo active >/run/units/usernetes-gpus
    else
        echo failed >/run/units/usernetes-gpus
        return 1
    fi
}

for name in $names; do
    case $verb/$name in
    is-active/usernetes-gpus) cat /run/units/usernetes-gpus ;;
    start/usernetes-gpus | restart/usernetes-gpus) gpus ;;
    is-active/containerd | is-active/kubelet) if running "$name"; then echo active; else echo inactive && exit 3; fi ;;
    start/containerd | start/kubelet) rm -f "/run/units/$name.stopped" ;;
    stop/containerd | stop/kubelet)
        : >"/run/units/$name.stopped"
        ! running "$name" || kill "$pid"
        ;;
    restart/containerd | restart/kubelet)
        rm -f "/run/units/$name.stopped"
        ! running "$name" || kill "$pid"
        ;;
    # Not at the start of the node, where it comes afterwards.
    try-restart/containerd | try-restart/kubelet) ! running "$name" || kill "$pid" ;;
    disable/* | stop/*) ;;
    *)
        echo "systemctl in the node does not know: $*" >&2
        exit 5
        ;;
    esac
done
