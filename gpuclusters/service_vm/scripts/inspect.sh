#!/bin/sh
# Looks at a service VM and changes nothing. Prints lines "key value"; values of several lines in base64.
# Usage: sh -s -- NAME NETWORK DISK SEED IMAGE SHA256 STATE_FOLDER CONSOLE FILES UNITS
#   FILES, UNITS: separated by blanks.
set -eu
LC_ALL=C LIBVIRT_DEFAULT_URI=qemu:///system
export LC_ALL LIBVIRT_DEFAULT_URI

name=$1 network=$2 disk=$3 seed=$4 image=$5 sha256=$6 state=$7 console=$8 files=$9
shift 9
units=$1

put() { # KEY, value on standard input
    printf '%s ' "$1"
    base64 | tr -d '\n'
    echo
}

field() { # NAME, text on standard input: the value behind "NAME:"
    sed -n "s/^$1: *//p" | head -n 1
}

read -r boot </proc/sys/kernel/random/boot_id
echo "boot-id $boot"

for unit in $units; do
    systemctl is-enabled --quiet "$unit" 2>/dev/null || echo "disabled $unit"
done
# Written and enabled, yet cut off before systemd was told: it goes on with what it has read before.
loaded=""
for file in $files; do
    case $file in
        /etc/systemd/system/*.d/*)
            unit=${file%/*}
            unit=${unit##*/}
            loaded="$loaded ${unit%.d}"
            ;;
        /etc/systemd/system/*) loaded="$loaded ${file##*/}" ;;
    esac
done
# shellcheck disable=SC2086 # names of units
if [ -n "$loaded" ] && systemctl show -p NeedDaemonReload $loaded 2>/dev/null | grep -q '=yes$'; then
    echo "stale yes"
fi
for file in $files; do
    if [ -f "$file" ]; then
        sum=$(sha256sum <"$file")
        echo "files $file ${sum%% *}"
    fi
done

# A mark says size and time of the image that was verified: reading a few GiB at each look takes too long.
# A mark that a power cut left empty says nothing.
if [ -f "$image" ] && [ -f "$state/images/$sha256" ] && read -r mark <"$state/images/$sha256"; then
    [ "$mark" != "$(stat -c '%s %Y %i' -- "$image")" ] || echo "image-verified yes"
fi
if [ -f "$seed" ] && [ -f "$state/$name.seed" ] && read -r digest sum <"$state/$name.seed"; then
    now=$(sha256sum <"$seed")
    [ "$sum" != "${now%% *}" ] || echo "seed $digest"
fi
if [ -f "$state/$name.host_key.pub" ]; then
    cut -d ' ' -f 1,2 "$state/$name.host_key.pub" | put host-key
fi
if [ -f "$console" ]; then
    tail -c 4096 "$console" | put console
fi

if ! said=$(virsh uri 2>&1); then
    printf '%s\n' "${said:-virsh is not installed}" | put problem
    exit 0
fi
if [ -f "$disk" ]; then
    # Shared: the disk of a VM that runs is locked. A file that is no qcow2 has no such line.
    backing=$(qemu-img info --force-share "$disk" 2>/dev/null |
        sed -n 's/^backing file: \([^ ]*\).*$/\1/p' | head -n 1)
    echo "backing $backing"
fi
if info=$(virsh net-info "$network" 2>/dev/null); then
    virsh net-dumpxml --inactive "$network" | put network
    echo "network-active $(printf '%s\n' "$info" | field Active)"
    echo "network-autostart $(printf '%s\n' "$info" | field Autostart)"
fi
if info=$(virsh dominfo "$name" 2>/dev/null); then
    virsh dumpxml --inactive "$name" | put domain
    echo "state $(printf '%s\n' "$info" | field State)"
    echo "autostart $(printf '%s\n' "$info" | field Autostart)"
    number=$(printf '%s\n' "$info" | field Id)
    echo "number $number"
    if [ "$number" != - ]; then
        virsh dumpxml "$name" | put running-domain
    fi
fi
