#!/bin/sh
# Ask or change the cluster from one of its servers, with the kubectl that RKE2 brings.
# Usage: sh -s -- clock | installed | ready | servers | node NAME | label NAME KEY=VALUE... KEY-...
#                 | taint NAME KEY=VALUE:EFFECT... KEY:EFFECT-...
#                 | drain NAME ANNOTATION REASON SECONDS | uncordon NAME ANNOTATION | delete NAME
set -eu
LC_ALL=C
export LC_ALL
KUBECONFIG=/etc/rancher/rke2/rke2.yaml
export KUBECONFIG
kubectl=/var/lib/rancher/rke2/bin/kubectl

k() {
    "$kubectl" --request-timeout=20s "$@"
}

verb=$1
shift
case $verb in
clock) date +%s ;;
installed)
    if [ -x "$kubectl" ] && [ -f "$KUBECONFIG" ]; then echo yes; else echo no; fi
    ;;
ready)
    if [ -x "$kubectl" ] && [ -f "$KUBECONFIG" ]; then k get --raw=/readyz 2>/dev/null || echo no; else echo no; fi
    ;;
servers) k get nodes --selector node-role.kubernetes.io/control-plane=true --output json ;;
node) k get node "$1" --ignore-not-found --output json ;;
label)
    node=$1
    shift
    k label node "$node" --overwrite "$@" >/dev/null
    ;;
taint)
    node=$1
    shift
    k taint node "$node" --overwrite "$@" >/dev/null
    ;;
drain)
    # Noted first: a run that is killed in between must know that the node is closed by us.
    k annotate node "$1" --overwrite "$2=$3" >/dev/null
    k cordon "$1" >/dev/null
    "$kubectl" drain "$1" --ignore-daemonsets --delete-emptydir-data --force --timeout="$4s" >/dev/null
    ;;
uncordon)
    k uncordon "$1" >/dev/null
    k annotate node "$1" "$2-" >/dev/null
    ;;
delete)
    "$kubectl" delete node "$1" --ignore-not-found --timeout=240s >/dev/null
    # The name is bound to a password of the machine; left there, a reinstalled machine cannot join.
    k delete secret --namespace kube-system "$1.node-password.rke2" --ignore-not-found >/dev/null
    ;;
*)
    echo "cluster.sh: unknown verb $verb" >&2
    exit 64
    ;;
esac
