#!/bin/sh
# Ask or change the cluster from the control plane's host, with the kubectl and kubeadm of its node.
# Usage: sh -s -- installed | ready | clock | version | node NAME | events NAME
#                 | token HOURS | revoke ID | sync | flannel NAME | taint NAME KEY:EFFECT... KEY-...
#                 | drain NAME ANNOTATION REASON SECONDS | uncordon NAME ANNOTATION | delete NAME
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
k() {
    in_node kubectl --request-timeout=20s "$@"
}

verb=$1
shift
case $verb in
clock) date +%s ;;
installed)
    if in_node test -f /etc/kubernetes/admin.conf 2>/dev/null; then echo yes; else echo no; fi
    ;;
ready) k get --raw=/readyz 2>/dev/null || echo no ;;
version) k get --raw=/version ;;
node) k get node "$1" --ignore-not-found --output json ;;
events)
    k get events --all-namespaces --field-selector "involvedObject.kind=Node,involvedObject.name=$1,type=Warning" \
        --output 'jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}'
    ;;
token)
    # Its life is short, and it is not on any command line: kubeadm makes it up.
    in_node kubeadm token create --ttl "$1" --print-join-command
    ;;
revoke) in_node kubeadm token delete "$1" >/dev/null ;;
sync)
    # Upstream's script annotates without --overwrite: it fails at a node whose address is another one now.
    k get nodes --output 'jsonpath={range .items[*]}{.metadata.name} {.metadata.labels.usernetes/host-ip} {.metadata.annotations.flannel\.alpha\.coreos\.com/public-ip-overwrite}{"\n"}{end}' |
        while read -r name now before; do
            if [ -n "$before" ] && [ "$before" != "$now" ]; then
                k annotate node "$name" flannel.alpha.coreos.com/public-ip-overwrite- >/dev/null
            fi
        done
    run_make sync-external-ip >"$state/make.log" 2>&1 || {
        tail -n 10 "$state/make.log" >&2
        exit 1
    }
    ;;
flannel) k delete pod --namespace kube-flannel --field-selector "spec.nodeName=$1" --wait=false >/dev/null ;;
taint)
    node=$1
    shift
    k taint node "$node" --overwrite "$@" >/dev/null
    ;;
drain)
    # Noted first: a run that is killed in between must know that the node is closed by us.
    k annotate node "$1" --overwrite "$2=$3" >/dev/null
    k cordon "$1" >/dev/null
    in_node kubectl drain "$1" --ignore-daemonsets --delete-emptydir-data --force --timeout="$4s" >/dev/null
    ;;
uncordon)
    k uncordon "$1" >/dev/null
    k annotate node "$1" "$2-" >/dev/null
    ;;
delete) in_node kubectl delete node "$1" --ignore-not-found --timeout=240s >/dev/null ;;
*)
    echo "cluster.sh: unknown verb $verb" >&2
    exit 64
    ;;
esac
