#!/bin/sh
# Starts, stops and watches the service VM on its host; run by systemd (gpu-clusters-service-vm*.service).
# Usage: service-vm start|stop|watch
# Environment: SERVICE_VM, SERVICE_VM_NETWORK, FABRIC_MANAGER_ADDRESS, BOOT_TIMEOUT and SHUTDOWN_TIMEOUT in
# seconds.
set -eu
LC_ALL=C LIBVIRT_DEFAULT_URI=qemu:///system
export LC_ALL LIBVIRT_DEFAULT_URI

state() {
    virsh domstate "$SERVICE_VM" 2>/dev/null | head -n 1
}

# fmpm answers with the lowest byte of fmReturn. 0 is the list of partitions; 248 is -8: it waits for the list
# of active partitions, which `pulumi up` gives it. That a process runs proves nothing: it may stay resident
# after it failed.
answers() {
    status=0
    said=$(fmpm -l --hostname "$FABRIC_MANAGER_ADDRESS" 2>&1) || status=$?
    [ "$status" = 0 ] || [ "$status" = 248 ]
}

start() {
    virsh net-start "$SERVICE_VM_NETWORK" >/dev/null 2>&1 || true
    [ "$(state)" = running ] || virsh start "$SERVICE_VM"
    waited=0
    until answers; do
        if [ "$waited" -ge "$BOOT_TIMEOUT" ]; then
            echo "error: the fabric manager did not answer within $BOOT_TIMEOUT s ($said)" >&2
            exit 1
        fi
        sleep 2
        waited=$((waited + 2))
    done
}

stop() {
    [ "$(state)" = running ] || return 0
    virsh shutdown "$SERVICE_VM"
    waited=0
    while [ "$(state)" = running ]; do
        if [ "$waited" -ge "$SHUTDOWN_TIMEOUT" ]; then
            virsh destroy "$SERVICE_VM"
            return 0
        fi
        sleep 1
        waited=$((waited + 1))
    done
}

# Starts a VM that ended; a fabric manager that does not answer is reported and never restarted from here:
# whoever restarts it must know which partitions are in use.
watch() {
    if [ "$(state)" != running ]; then
        echo "error: the service VM does not run ($(state)); starting it" >&2
        virsh start "$SERVICE_VM"
        return 0
    fi
    answers || {
        echo "error: the fabric manager does not answer (exit status $status: $said)" >&2
        exit 1
    }
}

case ${1:-} in
    start) start ;;
    stop) stop ;;
    watch) watch ;;
    *)
        echo "usage: service-vm start|stop|watch" >&2
        exit 64
        ;;
esac
