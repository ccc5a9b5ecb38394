#!/bin/sh
# Print one line per PCI function: "address group driver users", "-" for none, "absent" as group
# for a function that is not there. With USERS=users: the processes that hold the function's VFIO
# group (or, with IOMMUFD, its character device) open, joined by commas.
# Usage: sh -s -- users|none ADDRESS...     Exit: 5 when open files cannot be asked for.
set -eu
LC_ALL=C
export LC_ALL
want=$1
shift

name_of() {
    target=$(readlink -- "$1" || true)
    printf '%s' "${target##*/}"
}

nodes_of() {
    group=$(name_of "/sys/bus/pci/devices/$1/iommu_group")
    if [ -n "$group" ] && [ -e "/dev/vfio/$group" ]; then
        printf '%s\n' "/dev/vfio/$group"
    fi
    for node in "/sys/bus/pci/devices/$1"/vfio-dev/vfio*; do
        if [ -e "/dev/vfio/devices/${node##*/}" ]; then
            printf '%s\n' "/dev/vfio/devices/${node##*/}"
        fi
    done
}

# Process ids that hold any of the files: fuser prints them on its standard output, and the names
# on its standard error. It answers 1 both for "nobody" and for "could not find out"; only the
# second comes with words, and must not be taken for the first. Lines that begin with "Cannot" are
# about descriptors of other files (FUSE mounts, processes that just ended).
holders_of() {
    if [ $# -eq 0 ] || fuser "$@" 2>/dev/null; then
        return 0
    fi
    words=$(fuser "$@" 2>&1 >/dev/null | sed -e '/^Cannot /d')
    if [ -n "$words" ]; then
        echo "$words" >&2
        exit 5
    fi
}

if [ "$want" = users ]; then
    command -v fuser >/dev/null 2>&1 || {
        echo "fuser is not installed; install the package psmisc" >&2
        exit 5
    }
    all=$(for address; do nodes_of "$address"; done)
    # An assignment of its own: only so does a failure inside end the script.
    # shellcheck disable=SC2086 # paths of device nodes, one per line, without blanks
    held=$(holders_of $all)
    if [ -z "$held" ]; then
        want=none # asked once for all of them: nobody
    fi
fi
for address; do
    function=/sys/bus/pci/devices/$address
    if [ ! -e "$function" ]; then
        printf '%s absent - -\n' "$address"
        continue
    fi
    group=$(name_of "$function/iommu_group")
    driver=$(name_of "$function/driver")
    users=""
    if [ "$want" = users ]; then
        # shellcheck disable=SC2046 # as above
        users=$(holders_of $(nodes_of "$address"))
    fi
    # shellcheck disable=SC2086 # the ids are separated by blanks of all kinds
    users=$(printf '%s,' $users)
    users=${users%,}
    printf '%s %s %s %s\n' "$address" "${group:--}" "${driver:--}" "${users:--}"
done
