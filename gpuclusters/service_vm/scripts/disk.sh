#!/bin/sh
# Makes the VM's own disk: an overlay over the verified image. What was there is removed first.
# Usage: sh -s -- DISK IMAGE GIB
set -eu
LC_ALL=C
export LC_ALL

disk=$1 image=$2 gib=$3

info=$(qemu-img info "$image")
format=$(printf '%s\n' "$info" | sed -n 's/^file format: //p' | head -n 1)
[ -n "$format" ] || { echo "$image: qemu-img knows no format of it" >&2; exit 1; }
(umask 022 && mkdir -p -- "$(dirname -- "$disk")")
rm -f -- "$disk.new"
qemu-img create -q -f qcow2 -b "$image" -F "$format" "$disk.new" "${gib}G"
qemu-img check -q "$disk.new"
sync -- "$disk.new"
mv -f -- "$disk.new" "$disk"
