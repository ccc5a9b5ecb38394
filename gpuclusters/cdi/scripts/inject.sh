#!/bin/sh
# What NVIDIA's container runtime adds to a container, by mode. It runs for real, over a runc that does nothing: until
# then the runtime has written the container's configuration. No container is started, and nothing here is changed.
# Usage: sh -s -- CONFIG MODE...      CONFIG: of the container, JSON, without what GPUs need
# Prints "runtime VERSION", "gpu NAME" for each, and for each mode "status MODE N", "config MODE JSON", "said MODE WORDS".
set -eu
LC_ALL=C
export LC_ALL
# The last is where the GPU Operator puts it; before its runtime stands a wrapper that sets another configuration.
PATH=$PATH:/usr/local/nvidia/toolkit
runtime=$(command -v nvidia-container-runtime.real || command -v nvidia-container-runtime || true)
[ -n "$runtime" ] || exit 0
"$runtime" --version 2>/dev/null | sed -n 's/^NVIDIA Container Runtime version /runtime /p'
driver=/run/nvidia/driver
{ nvidia-smi -L || chroot "$driver" nvidia-smi -L; } 2>/dev/null | sed -n 's/^GPU [0-9]*: \(.*\) (UUID.*/gpu \1/p'
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/rootfs"
config=$1
shift
# What was set on the machine counts, but for the mode.
set_in=/etc/nvidia-container-runtime/config.toml
for own in "$set_in" "${runtime%/*}/.config/nvidia-container-runtime/config.toml"; do
    [ ! -f "$own" ] || set_in=$own
done
[ -f "$set_in" ] || set_in=/dev/null
for mode; do
    nvidia-ctk --quiet config --config-file="$set_in" --output="$folder/config.toml" \
        --set nvidia-container-runtime.mode="$mode" --set nvidia-container-runtime.runtimes=true
    printf '%s\n' "$config" >"$folder/config.json"
    status=0
    NVIDIA_CTK_CONFIG_FILE_PATH=$folder/config.toml "$runtime" create --bundle "$folder" probe \
        >"$folder/said" 2>&1 </dev/null || status=$?
    echo "status $mode $status"
    printf 'config %s ' "$mode"
    tr -d '\n' <"$folder/config.json"
    printf '\nsaid %s %s\n' "$mode" "$(tail -n 3 "$folder/said" | tr '\n' ' ')"
done
