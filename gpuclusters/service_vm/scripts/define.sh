#!/bin/sh
# Defines the domain or the network of the service VM from the XML on the standard input of `main`, and lets it
# start with libvirt. A domain that runs goes on as it is; a network is taken down first (its VM is off then).
# Usage: sh -s -- domain|network NAME
set -eu
LC_ALL=C LIBVIRT_DEFAULT_URI=qemu:///system
export LC_ALL LIBVIRT_DEFAULT_URI

kind=$1 name=$2

main() {
    file=$(mktemp)
    trap 'rm -f -- "$file"' EXIT
    base64 -d >"$file"
    # libvirt refuses a name that has another uuid: what is taken over goes first; its VM is off by then.
    uuid=$(sed -n 's,^ *<uuid>\(.*\)</uuid>$,\1,p' "$file")
    if [ "$kind" = domain ]; then
        if live=$(virsh domuuid "$name" 2>/dev/null) && [ "$(echo "$live" | head -n 1)" != "$uuid" ]; then
            virsh undefine --nvram "$name"
        fi
        virsh define --validate "$file"
        virsh autostart "$name"
        return 0
    fi
    info=$(virsh net-info "$name" 2>/dev/null || true)
    if printf '%s\n' "$info" | grep -q '^Active: *yes'; then
        virsh net-destroy "$name"
    fi
    if live=$(virsh net-uuid "$name" 2>/dev/null) && [ "$(echo "$live" | head -n 1)" != "$uuid" ]; then
        virsh net-undefine "$name"
    fi
    # Where libvirt notes a network's members. It makes the folder only for a network with a DHCP server, and
    # refuses to start a VM on another without it (seen with 11.3).
    (umask 022 && mkdir -p /var/lib/libvirt/dnsmasq)
    virsh net-define "$file"
    virsh net-autostart "$name"
    virsh net-start "$name"
}
