#!/bin/sh
# Functions, for scripts that are sent after this one: the /dev/vfio nodes of a PCI function and the
# processes that hold them. Alone it does nothing.
set -eu
LC_ALL=C
export LC_ALL

name_of() {
    target=$(readlink -- "$1" || true)
    printf '%s' "${target##*/}"
}

# The nodes of one function: its group's, and with IOMMUFD its own character device.
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

require_fuser() {
    command -v fuser >/dev/null 2>&1 || {
        echo "fuser is not installed; install the package psmisc" >&2
        exit 5
    }
}

# All nodes of the functions, one per line.
nodes_of_all() {
    for function; do
        nodes_of "$function"
    done
}

# Process ids that hold any of these functions, joined by commas; nothing when nobody does.
users_of() {
    # An assignment of its own: only so does a failure inside end the script.
    # shellcheck disable=SC2046 # paths of device nodes, one per line, without blanks
    held=$(holders_of $(nodes_of_all "$@"))
    # shellcheck disable=SC2086 # the ids are separated by blanks of all kinds
    held=$(printf '%s,' $held)
    held=${held%,}
}
