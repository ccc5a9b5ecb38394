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
        say overlay "${sum%% *} ${file##*/}"
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
    "$container" 2>/dev/null || echo absent)
say container "${found%% *}"
case $found in
*' '*) say image "${found#* }" ;;
esac
[ "${found%% *}" = running ] || exit 0

for file in kubelet admin; do
    if in_node test -f "/etc/kubernetes/$file.conf"; then say "$file-conf" yes; fi
done
# The authority of the cluster is what tells one from another.
if in_node test -f /etc/kubernetes/pki/ca.crt; then
    say cluster-id "$(in_node cat /etc/kubernetes/pki/ca.crt | sha256sum | cut -d ' ' -f 1)"
fi
say gpu-unit "$(in_node systemctl is-active usernetes-gpus.service || true)"
in_node nvidia-ctk cdi list 2>/dev/null | sed -n 's/^nvidia.com\/gpu=/cdi /p' || true
in_node nvidia-smi -L 2>/dev/null | sed -n 's/.*(UUID: \(GPU-[^)]*\)).*/node-gpu \1/p' || true
say runtime "$(in_node containerd config dump 2>/dev/null |
    sed -n "s/^ *default_runtime_name *= *[\"']\([^\"']*\)[\"'].*/\1/p" | head -n 1)"
say runtime-mode "$(in_node nvidia-ctk config 2>/dev/null |
    sed -n '/^\[nvidia-container-runtime\]/,/^\[/s/^ *mode *= *"\([^"]*\)".*/\1/p' | head -n 1)"
# Certificates alone: the file of the kubelet holds its key too.
for file in /etc/kubernetes/pki/apiserver.crt /var/lib/kubelet/pki/kubelet-client-current.pem; do
    if in_node test -f "$file"; then
        say certificate "$(in_node sed -n '/BEGIN CERTIFICATE/,/END CERTIFICATE/p' "$file" | base64 -w 0)"
    fi
done
