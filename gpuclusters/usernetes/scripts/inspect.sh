#!/bin/sh
# Print what is known of the node on this host, one "key value" per line; changes nothing.
# Usage: sh -s
# shellcheck disable=SC2154 # environment.sh is sent before it and sets them
set -eu
say() {
    printf '%s %s\n' "$1" "$2"
}

for name in owner machine release host-ip began joined content; do
    if [ -f "$state/marks/$name" ]; then
        say "$name" "$(cat "$state/marks/$name")"
    fi
done
if [ -f "$source/Makefile" ]; then
    say source "$(content "$source")"
fi
for file in "$overlay"/*; do
    if [ -f "$file" ]; then
        sum=$(sha256sum <"$file")
        say overlay "${file##*/} ${sum%% *}"
    fi
done
say clock "$(date +%s)"
# As upstream's Makefile finds it.
say route "$(ip --json route get 1 2>/dev/null | sed -n 's/.*"prefsrc": *"\([^"]*\)".*/\1/p' || true)"
nvidia-smi -L 2>/dev/null | sed -n 's/.*(UUID: \(GPU-[^)]*\)).*/host-gpu \1/p' || true

problem=$(docker version --format '{{.Server.Version}}' 2>&1 >/dev/null) || {
    say docker "${problem:-it does not answer}"
    exit 0
}
say docker ok
say volumes "$(docker volume ls --quiet --filter label=com.docker.compose.project=usernetes | grep -c . || true)"
found=$(docker inspect --format '{{.State.Status}} {{index .Config.Labels "gpu-clusters.dev/image"}}' \
    "$container" 2>/dev/null) || found=absent
say container "${found%% *}"
case $found in
*' '*) say image "${found#* }" ;;
esac
[ "${found%% *}" = running ] || exit 0

# One look at all files: every command in a container takes its time.
there=$(in_node ls /etc/kubernetes/kubelet.conf /etc/kubernetes/pki/ca.crt \
    /etc/kubernetes/pki/apiserver.crt /var/lib/kubelet/pki/kubelet-client-current.pem 2>/dev/null || true)
certificates=""
for file in $there; do
    case $file in
    */kubelet.conf) say kubelet-conf yes ;;
    # The authority of the cluster is what tells one from another.
    */ca.crt) say cluster-id "$(in_node cat "$file" | sha256sum | cut -d ' ' -f 1)" ;;
    *) certificates="$certificates $file" ;;
    esac
done
say gpu-unit "$(in_node systemctl is-active usernetes-gpus.service || true)"
in_node nvidia-ctk cdi list 2>/dev/null | sed -n 's/^nvidia.com\/gpu=/cdi /p' || true
in_node nvidia-smi -L 2>/dev/null | sed -n 's/.*(UUID: \(GPU-[^)]*\)).*/node-gpu \1/p' || true
say runtime "$(in_node containerd config dump 2>/dev/null |
    sed -n "s/^ *default_runtime_name *= *[\"']\([^\"']*\)[\"'].*/\1/p" | head -n 1)"
say runtime-mode "$(in_node nvidia-ctk config 2>/dev/null |
    sed -n '/^\[nvidia-container-runtime\]/,/^\[/s/^ *mode *= *"\([^"]*\)".*/\1/p' | head -n 1)"
# Certificates alone: the file of the kubelet holds its key too.
if [ -n "$certificates" ]; then
    # shellcheck disable=SC2086 # paths without spaces
    say certificates "$(in_node sed -n '/BEGIN CERTIFICATE/,/END CERTIFICATE/p' $certificates | base64 -w 0)"
fi
