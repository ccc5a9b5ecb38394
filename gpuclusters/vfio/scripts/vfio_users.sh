#!/bin/sh
# Functions, for scripts that come after this one: the /dev/vfio nodes of a PCI function and the processes that
# hold files. Alone it does nothing.
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

# Process ids that hold any of the files, one per line; with words on standard error and status 5 where that cannot
# be found out.
holders_of() {
    [ $# -gt 0 ] || return 0
    # fuser answers 1 both for "nobody" and for "could not find out"; only the second comes with words. Lines that
    # begin with "Cannot" are about descriptors of other files (FUSE mounts, processes that just ended).
    if ! by_fuser=$(fuser "$@" 2>/dev/null); then
        words=$(fuser "$@" 2>&1 >/dev/null | sed -e '/^Cannot /d')
        [ -z "$words" ] || { echo "$words" >&2; return 5; }
    fi
    # It tells files by their inodes, and libvirt and containers have a /dev with inodes of its own: by name.
    nodes=$#
    for node; do
        set -- "$@" -o -lname "*${node#/dev}"
    done
    shift "$nodes"
    {
        # shellcheck disable=SC2086 # process ids, blanks of all kinds between them
        printf '%s\n' $by_fuser
        find /proc/[0-9]*/fd -maxdepth 1 '(' -false "$@" ')' 2>/dev/null | cut -d / -f 3 || true
    } | sed -e '/^$/d' | sort -un
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
    held=$(printf '%s' "$held" | tr '\n' ,)
}
