#!/bin/sh
# The node's script where the kernel has NVIDIA's driver and shows GPUs on the PCI bus: both are laid over what this
# kernel shows, in mounts of this process alone.
# Usage: unshare --mount sh -s -- COUNT      the script follows this one on standard input
set -eu
devices=$(mktemp)
{
    echo "Character devices:"
    printf '%3d %s\n' 195 nvidia 195 nvidiactl 234 nvidia-uvm
    sed -e 1d /proc/devices
} >"$devices"
mount --bind "$devices" /proc/devices
mount -t tmpfs pci /sys/bus/pci/devices
number=0
while [ "$number" -lt "$1" ]; do
    folder=/sys/bus/pci/devices/0000:0$((number + 4)):00.0
    mkdir "$folder"
    echo 0x10de >"$folder/vendor"
    echo 0x1db1 >"$folder/device"
    echo 0x030200 >"$folder/class"
    echo 0 >"$folder/numa_node"
    echo "0x0 0x0 0x0" >"$folder/resource"
    number=$((number + 1))
done
