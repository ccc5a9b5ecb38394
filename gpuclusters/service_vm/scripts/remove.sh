#!/bin/sh
# Removes what belongs to a service VM that is shut off, and nothing else: its domain with its UEFI variables,
# its disk, seed and keys, its network, its units. The image that its disk was laid over stays.
# Usage: sh -s -- NAME NETWORK|- DISK SEED STATE_FOLDER CONSOLE FILES UNITS
#   FILES, UNITS: separated by blanks. NETWORK: - leaves it.
set -eu
LC_ALL=C LIBVIRT_DEFAULT_URI=qemu:///system
export LC_ALL LIBVIRT_DEFAULT_URI

name=$1 network=$2 disk=$3 seed=$4 state=$5 console=$6 files=$7 units=$8

for unit in $units; do
    # What is not there cannot be disabled; what is there and cannot be is said by the next check.
    systemctl disable --now "$unit" >/dev/null 2>&1 || true
done
if virsh dominfo "$name" >/dev/null 2>&1; then
    virsh undefine --nvram "$name"
fi
if [ "$network" != - ] && info=$(virsh net-info "$network" 2>/dev/null); then
    if printf '%s\n' "$info" | grep -q '^Active: *yes'; then
        virsh net-destroy "$network"
    fi
    virsh net-undefine "$network"
fi
rm -f -- "$disk" "$disk.new" "$seed" "$seed.new" "$console" "$state/$name.seed" \
    "$state/$name.host_key" "$state/$name.host_key.pub" \
    "$state/$name.client_key" "$state/$name.client_key.pub"
rm -rf -- "$state"/.seed.*
# shellcheck disable=SC2086 # paths of ours, without blanks
rm -f -- $files
systemctl daemon-reload
