#!/bin/sh
# The first process of the first boot: installs the boot loader on the disk that the machine runs from.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mountpoint -q /proc || mount -t proc proc /proc
mountpoint -q /sys || mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mount -o remount,rw /
grub-install /dev/vda && update-grub && echo "lab: the boot loader is installed"
sync
mount -o remount,ro /
poweroff -f
