#!/bin/sh
# Print one line per PCI function: "address group driver users iommufd", "-" for none, "absent" as group
# for a function that is not there. With USERS=users: the processes that hold the function's VFIO
# group (or, with IOMMUFD, its character device) open, joined by commas. "iommufd" is the name of the
# function's own VFIO device where the kernel has both that and /dev/iommu.
# Sent after vfio_users.sh.
# Usage: sh -s -- users|none ADDRESS...     Exit: 5 when open files cannot be asked for.
set -eu
LC_ALL=C
export LC_ALL
want=$1
shift

if [ "$want" = users ]; then
    require_fuser
    users_of "$@"
    if [ -z "$held" ]; then
        want=none # asked once for all of them: nobody
    fi
fi
for address; do
    function=/sys/bus/pci/devices/$address
    if [ ! -e "$function" ]; then
        printf '%s absent - - -\n' "$address"
        continue
    fi
    group=$(name_of "$function/iommu_group")
    driver=$(name_of "$function/driver")
    held=""
    if [ "$want" = users ]; then
        users_of "$address"
    fi
    own=""
    for node in "$function"/vfio-dev/vfio*; do
        if [ -e /dev/iommu ] && [ -e "/dev/vfio/devices/${node##*/}" ]; then
            own=${node##*/}
        fi
    done
    printf '%s %s %s %s %s\n' "$address" "${group:--}" "${driver:--}" "${held:--}" "${own:--}"
done
