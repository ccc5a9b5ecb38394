#!/bin/sh
# Starts the service VM, or ends it.
# Usage: sh -s -- start NAME              starts it; fine if it runs
#        sh -s -- shutdown NAME SECONDS   asks it to shut down and waits; exit 10 if it still runs then
#        sh -s -- off NAME                takes its power; fine if it is off
set -eu
LC_ALL=C LIBVIRT_DEFAULT_URI=qemu:///system
export LC_ALL LIBVIRT_DEFAULT_URI

verb=$1 name=$2 seconds=${3:-0}

state() {
    virsh domstate "$name" 2>/dev/null | head -n 1
}

case $verb in
    start)
        [ "$(state)" = running ] || virsh start "$name"
        ;;
    shutdown)
        [ "$(state)" != "shut off" ] || exit 0
        virsh shutdown "$name" >&2 || true
        waited=0
        while [ "$(state)" != "shut off" ]; do
            [ "$waited" -lt "$seconds" ] || exit 10
            sleep 1
            waited=$((waited + 1))
        done
        ;;
    off)
        [ "$(state)" = "shut off" ] || virsh destroy "$name"
        ;;
esac
