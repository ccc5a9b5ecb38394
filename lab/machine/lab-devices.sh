#!/bin/sh
# QEMU has no NVIDIA device: what its `edu` devices say of themselves in sysfs is covered, where identity counts.
# The kernel knows the true ids. The registers are those of one of them, with an H100's ids and class.
set -eu
covers=/run/lab-devices
mkdir -p "$covers"
echo 0x10de >"$covers/vendor"
echo 0x2330 >"$covers/device"
echo 0x030200 >"$covers/class"
for device in /sys/devices/pci0000:00/0000:00:1[0-7].0; do
    read -r vendor <"$device/vendor"
    [ "$vendor" = 0x1234 ] || continue
    if [ ! -e "$covers/config" ]; then
        # Octal, little-endian: vendor and device at 0, class at 9.
        { printf '\336\020\060\043' && head -c 9 "$device/config" | tail -c 5 && printf '\000\002\003' &&
            tail -c +13 "$device/config"; } >"$covers/config"
    fi
    for name in vendor device class config; do
        echo "$covers/$name $device/$name none bind 0 0"
    done
done >"$covers/fstab"
mount --all --fstab "$covers/fstab"
