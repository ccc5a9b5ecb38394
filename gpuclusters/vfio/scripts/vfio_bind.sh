#!/bin/sh
# Give PCI functions to vfio-pci by address, or give them back. Written by gpu-clusters; changes are put back.
# Nothing is taken whose address is not listed, whose ids and class are not those of the list, or that is in use.
#
# Comes after vfio_users.sh.
# Usage: inspect|bind|release ENTRY...     or: inspect|bind|release --list FILE
# ENTRY is ADDRESS=VENDOR:DEVICE=CLASS with the first digits of the class, or none of them.
# inspect prints for each "address there id class driver group override header users", "-" for none.
# bind and release do all that they can and say the rest on standard error.
# Exit: 0 done, 1 something is left, 64 wrong arguments.
set -eu
LC_ALL=C
export LC_ALL
pci=/sys/bus/pci
left=0

complain() {
    echo "error: $1" >&2
    left=1
}

value_of() {
    value=$(cat -- "$1" 2>/dev/null || true)
    printf '%s' "${value#0x}"
}

# The kernel acts while a file of sysfs is written; what it refuses shows in the links afterwards.
wait_for_driver() {
    tries=100
    while [ "$(name_of "$1/driver")" != "$2" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
}

# Device nodes through which programs use a function.
nodes_of() {
    group=$(name_of "$1/iommu_group")
    if [ "$(name_of "$1/driver")" = vfio-pci ] && [ -n "$group" ] && [ -e "/dev/vfio/$group" ]; then
        printf '%s\n' "/dev/vfio/$group"
    fi
    for node in "$1"/vfio-dev/vfio*; do
        [ ! -e "/dev/vfio/devices/${node##*/}" ] || printf '%s\n' "/dev/vfio/devices/${node##*/}"
    done
    for node in "$1"/drm/card* "$1"/drm/renderD*; do
        [ ! -e "/dev/dri/${node##*/}" ] || printf '%s\n' "/dev/dri/${node##*/}"
    done
    if [ "$(name_of "$1/driver")" = nvidia ]; then
        for node in /dev/nvidia*; do
            [ ! -c "$node" ] || printf '%s\n' "$node"
        done
    fi
}

# Who uses a function, in words joined by commas: pid:N, block:NAME, net:NAME, module:nvidia.
users_of() {
    found=""
    for path in "$1"/net/*; do
        [ -e "$path" ] || continue
        [ "$(value_of "$path/operstate")" = down ] || found="$found,net:${path##*/}"
    done
    for path in "$1"/block/* "$1"/nvme/*/nvme*n* "$1"/host*/target*/*/block/* "$1"/ata*/host*/target*/*/block/*; do
        [ ! -e "$path" ] || found="$found,block:${path##*/}"
    done
    if [ "$(name_of "$1/driver")" = nvidia ]; then
        count=$(value_of /sys/module/nvidia/refcnt)
        [ "${count:-0}" -eq 0 ] || found="$found,module:nvidia"
    fi
    nodes=$(nodes_of "$1")
    if [ -n "$nodes" ]; then
        # shellcheck disable=SC2086 # device nodes, one per line, without blanks
        if ! command -v fuser >/dev/null 2>&1; then
            found="$found,unknown:fuser-is-not-installed"
        elif pids=$(holders_of $nodes 2>/dev/null); then
            for pid in $pids; do
                found="$found,pid:$pid"
            done
        else
            found="$found,unknown:fuser-fails"
        fi
    fi
    printf '%s' "${found#,}"
}

# Whether what is at the address is what the list says; complains if not.
is_it() {
    at=$pci/devices/$address
    if [ ! -e "$at" ]; then
        complain "$address is not there: no PCI function has this address"
        return 1
    fi
    live="$(value_of "$at/vendor"):$(value_of "$at/device")"
    if [ "$live" != "$id" ]; then
        complain "$address is $live, not $id: another device has this address; it is left alone"
        return 1
    fi
    case $(value_of "$at/class") in
    0604*) ;;
    "$class"*) return 0 ;;
    esac
    complain "$address has class $(value_of "$at/class"), not ${class:-that of an endpoint}; it is left alone"
    return 1
}

inspect_one() {
    at=$pci/devices/$address
    if [ ! -e "$at" ]; then
        printf '%s no - - - - - - -\n' "$address"
        return
    fi
    driver=$(name_of "$at/driver")
    group=$(name_of "$at/iommu_group")
    override=$(value_of "$at/driver_override")
    [ "$override" != "(null)" ] || override=""
    header=$(od -An -tx1 -j14 -N1 -- "$at/config" 2>/dev/null | tr -d ' ' || true)
    users=$(users_of "$at")
    printf '%s yes %s:%s %s %s %s %s %s %s\n' "$address" "$(value_of "$at/vendor")" "$(value_of "$at/device")" \
        "$(value_of "$at/class")" "${driver:--}" "${group:--}" "${override:--}" "${header:--}" "${users:--}"
}

bind_one() {
    is_it || return 0
    driver=$(name_of "$at/driver")
    if [ -n "$driver" ] && [ "$driver" != vfio-pci ]; then
        users=$(users_of "$at")
        if [ -n "$users" ]; then
            complain "$address is in use on driver $driver ($users); it is left alone"
            return 0
        fi
    fi
    # First this, so that no other driver can take it in between.
    [ "$(value_of "$at/driver_override")" = vfio-pci ] || echo vfio-pci >"$at/driver_override"
    [ "$driver" != vfio-pci ] || return 0
    if [ -n "$driver" ]; then
        echo "$address" >"$at/driver/unbind"
        wait_for_driver "$at" "" || {
            complain "$address stays on driver $driver: it does not let go"
            return 0
        }
    fi
    echo "$address" >"$pci/drivers_probe"
    wait_for_driver "$at" vfio-pci || {
        if [ -z "$(name_of "$at/iommu_group")" ]; then
            complain "vfio-pci does not take $address: it is in no IOMMU group, the IOMMU is off"
        else
            complain "vfio-pci does not take $address; see dmesg"
        fi
        return 0
    }
    echo "$address is on vfio-pci"
}

release_one() {
    at=$pci/devices/$address
    [ -e "$at" ] || return 0
    is_it || return 0
    if [ "$(name_of "$at/driver")" = vfio-pci ]; then
        users=$(users_of "$at")
        if [ -n "$users" ]; then
            complain "$address is in use ($users); it is left on vfio-pci"
            return 0
        fi
    fi
    echo "" >"$at/driver_override"
    [ "$(name_of "$at/driver")" = vfio-pci ] || return 0
    echo "$address" >"$at/driver/unbind"
    wait_for_driver "$at" "" || {
        complain "vfio-pci does not let go of $address"
        return 0
    }
    echo "$address" >"$pci/drivers_probe"
    echo "$address is released"
}

usage() {
    echo "usage: inspect|bind|release ENTRY... | --list FILE" >&2
    exit 64
}

[ $# -ge 2 ] || usage
verb=$1
shift
case $verb in inspect | bind | release) ;; *) usage ;; esac
if [ "$1" = --list ]; then
    [ $# -eq 2 ] || usage
    entries=$(sed -e '/^#/d' -e '/^$/d' -- "$2")
    # shellcheck disable=SC2086 # words without blanks, one per line
    set -- $entries
fi
if [ "$verb" = bind ]; then
    modprobe vfio-pci || complain "the module vfio-pci cannot be loaded"
fi
for entry; do
    address=${entry%%=*}
    rest=${entry#*=}
    id=${rest%%=*}
    class=${rest#*=}
    case $address in
    ????:??:??.?) ;;
    *)
        complain "'$entry' is no entry of the list"
        continue
        ;;
    esac
    case $verb in
    inspect) inspect_one ;;
    bind) bind_one ;;
    release) release_one ;;
    esac
done
exit "$left"
