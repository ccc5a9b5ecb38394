#!/bin/sh
# Make the GPUs of this node usable for its pods. Runs in the node container at every start, before containerd,
# and again whenever something is found to be off; done twice it changes nothing.
#
# What pods get goes like this: the device plugin answers with the UUID of a GPU, kubelet sets it as
# NVIDIA_VISIBLE_DEVICES, NVIDIA's runtime (default, in CDI mode) looks up nvidia.com/gpu=<UUID>. So names by
# UUID have to be in the specification, and "all" for the plugin itself.
set -eu
LC_ALL=C
export LC_ALL
specification=/etc/cdi/nvidia.yaml

# Another writer of specifications: what it writes to /run/cdi would win over ours.
systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service >/dev/null 2>&1 || true
rm -f /run/cdi/nvidia.yaml "$specification"

# systemd's cgroups find devices by these links. Releases before 1.19 may fail here without harm.
nvidia-ctk system create-dev-char-symlinks --create-all ||
    echo "node-gpus: links in /dev/char were not all made" >&2
mkdir -p "${specification%/*}"
nvidia-ctk cdi generate --output="$specification" --device-name-strategy=uuid
# All keys in one call, so that the file is never between two states. What else it says stays.
nvidia-ctk config --in-place \
    --set nvidia-container-runtime.mode=cdi \
    --set accept-nvidia-visible-devices-envvar-when-unprivileged=true \
    --set accept-nvidia-visible-devices-as-volume-mounts=true
# From the file: what containerd prints is of its own newest version, which does not fit kind's file.
nvidia-ctk runtime configure --runtime=containerd --config-source=file --cdi.enabled --set-as-default
# Not waited for: at the start of the node containerd waits for this unit in turn.
systemctl try-restart --no-block containerd.service

nvidia-ctk cdi list
