#!/bin/sh
# A container of an account, as kubelet and containerd would have one made: with NVIDIA's runtime, which takes the
# GPUs from NVIDIA_VISIBLE_DEVICES. Prints what is in it. Runs as the account, within rootlesskit.
# Usage: sh -s -- VISIBLE-DEVICES
set -eu
bundle=$(mktemp -d)
mkdir -p "$bundle/rootfs/bin" "$bundle/rootfs/etc" "$bundle/state"
cp /usr/bin/busybox "$bundle/rootfs/bin/"
for name in sh ls cat; do
    ln -s busybox "$bundle/rootfs/bin/$name"
done
cd "$bundle"
runc spec
# The namespace of users is rootlesskit's.
python3 - "$1" <<'EDIT'
import json, sys

with open("config.json") as file:
    spec = json.load(file)
spec["process"]["terminal"] = False
spec["process"]["env"].append(f"NVIDIA_VISIBLE_DEVICES={sys.argv[1]}")
spec["process"]["args"] = ["sh", "-c", "ls -1 -d /dev/nvidia*; ls -1 /usr/lib/*; ls -1 /usr/bin/nvidia-smi"]
spec["root"]["readonly"] = False
with open("config.json", "w") as file:
    json.dump(spec, file)
EDIT
runtime="nvidia-container-runtime --root $bundle/state"
$runtime create --bundle "$bundle" probe </dev/null
$runtime start probe
# Whoever called this waits for it only so long.
until $runtime state probe | grep -q '"stopped"'; do
    sleep 0.05
done
$runtime delete probe
