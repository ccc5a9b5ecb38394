#!/bin/sh
# Print what decides whether this machine can give its GPUs to virtual machines: one fact a line, a
# key and its values. Reads only; also runs without root, and then says less.
# Sent after vfio_users.sh. Usage: sh -s -- FABRIC_MANAGER|- ADDRESS...
#   FABRIC_MANAGER  address of the fabric manager's API, or "-" not to ask for it
#   ADDRESS         PCI functions whose registers are read, like 0000:0f:00.0
set -eu
LC_ALL=C
export LC_ALL
fabric=$1
shift
tab=$(printf '\t')

say() {
    printf '%s\n' "$*"
}

# The first line of a file as $line; empty where there is none or it cannot be read.
first_line() {
    line=""
    { IFS= read -r line <"$1"; } 2>/dev/null || true
}

has() {
    command -v "$1" >/dev/null 2>&1
}

identity() {
    say format 1
    first_line /proc/sys/kernel/osrelease
    say kernel "$line"
    first_line /proc/cmdline
    say command-line "$line"
    first_line /etc/machine-id
    say machine-id "$line"
}

processor() {
    # The first processor speaks for all.
    awk -F ': *' '
        /^vendor_id/ && !vendor { vendor = $2 }
        /^flags/ && !flags { flags = $2 }
        END {
            print "cpu-vendor", vendor
            printf "cpu-flags"
            n = split(flags, flag, " ")
            for (i = 1; i <= n; i++)
                if (flag[i] ~ /^(vmx|svm|hypervisor|pdpe1gb)$/) printf " %s", flag[i]
            print ""
        }' /proc/cpuinfo
    for table in DMAR IVRS; do
        if [ -e "/sys/firmware/acpi/tables/$table" ]; then
            say acpi-tables "$table"
        fi
    done
}

memory() {
    awk '/^MemTotal:/ { printf "memory-kib %s\n", $2 }' /proc/meminfo
    for node in /sys/devices/system/node/node[0-9]*; do
        if [ -r "$node/meminfo" ]; then
            total=$(awk '/MemTotal:/ { print $4 }' "$node/meminfo")
            first_line "$node/hugepages/hugepages-1048576kB/nr_hugepages"
            say numa "${node##*/node}" "$total" "${line:-0}"
        fi
    done
}

# No process is started for a function here: a machine has hundreds of them.
functions() {
    for folder in /sys/bus/pci/devices/*; do
        if [ -e "$folder/vendor" ]; then
            first_line "$folder/vendor"
            vendor=${line#0x}
            first_line "$folder/device"
            device=${line#0x}
            first_line "$folder/class"
            class=${line#0x}
            first_line "$folder/numa_node"
            say pci "${folder##*/}" "$vendor:$device" "$class" "${line:--1}"
        fi
    done
    groups=0
    for folder in /sys/kernel/iommu_groups/*; do
        if [ -d "$folder" ]; then
            groups=$((groups + 1))
            for member in "$folder"/devices/*; do
                if [ -L "$member" ]; then
                    say member "${member##*/}" "${folder##*/}"
                fi
            done
        fi
    done
    say iommu-groups "$groups"
    for bound in /sys/bus/pci/drivers/*/*:*:*.*; do
        if [ -L "$bound" ]; then
            driver=${bound%/*}
            say driver "${bound##*/}" "${driver##*/}"
        fi
    done
}

registers() {
    for address; do
        folder=/sys/bus/pci/devices/$address
        if [ ! -e "$folder" ]; then
            continue
        fi
        # Read from the device itself; the files beside it are what the kernel saw at boot.
        bytes=$(od -An -v -tx1 -N16 "$folder/config" 2>/dev/null | tr -d ' \n' || true)
        if [ -n "$bytes" ]; then
            say header "$address" "$bytes"
        fi
        number=0
        if [ -r "$folder/resource" ]; then
            while [ "$number" -lt 6 ] && IFS=' ' read -r start end rest; do
                if [ -n "$rest" ]; then
                    say bar "$address" "$number" "$start" "$end"
                fi
                number=$((number + 1))
            done <"$folder/resource"
        fi
        if [ -e "$folder/reset" ]; then
            say reset "$address" yes
        else
            say reset "$address" no
        fi
        for device in "$folder"/vfio-dev/vfio*; do
            if [ -e "$device" ]; then
                say vfio-device "$address" "${device##*/}"
            fi
        done
    done
}

# Loaded or built in; a driver that is neither has no folder there.
modules() {
    for name in nvidia nvidia_drm nvidia_modeset nvidia_uvm nouveau vfio vfio_pci iommufd kvm_intel kvm_amd; do
        if [ -d "/sys/module/$name" ]; then
            say modules "$name"
        fi
    done
}

nodes() {
    for node in /dev/kvm /dev/iommu /dev/vfio/vfio /dev/vfio/[0-9]* /dev/vfio/devices/vfio* \
        /dev/nvidia[0-9]* /dev/nvidiactl; do
        if [ -e "$node" ]; then
            say nodes "$node"
        fi
    done
}

holders() {
    for node; do # a pattern that fits nothing stands for itself
        shift
        if [ -e "$node" ]; then
            set -- "$@" "$node"
        fi
    done
    for pid in $(holders_of "$@" 2>/dev/null || true); do
        first_line "/proc/$pid/comm"
        say holders "$pid" "$line"
    done
}

# The nodes that a driver of the host, like nouveau, made for these functions.
graphics_nodes() {
    for address; do
        for node in "/sys/bus/pci/devices/$address"/drm/card* "/sys/bus/pci/devices/$address"/drm/renderD*; do
            if [ -e "$node" ]; then
                printf '%s\n' "/dev/dri/${node##*/}"
            fi
        done
    done
}

software() {
    for name in systemctl apt-get dnf virsh; do
        if has "$name"; then
            say commands "$name"
        fi
    done
    if [ "$fuser" = yes ]; then
        say commands fuser
    fi
    if has dpkg-query; then
        # The status begins with "ii" for what is installed; other lines are leftovers.
        dpkg-query --show --showformat='${db:Status-Abbrev}\t${Package}\t${Version}\n' \
            '*nvidia*' 'cuda-drivers*' 2>/dev/null |
            while IFS=$tab read -r status name version; do
                case $status in
                ii*) say packages "$name" "$version" ;;
                esac
            done || true
    fi
    if has rpm; then
        rpm -qa --queryformat 'packages %{NAME} %{VERSION}\n' '*nvidia*' 'cuda-drivers*' 2>/dev/null || true
    fi
    if has qemu-system-x86_64; then
        say qemu "$(qemu-system-x86_64 --version 2>/dev/null | head -n 1)"
    fi
    if has virsh; then
        say libvirt "$(virsh --version 2>/dev/null | head -n 1)"
    fi
    for file in /usr/share/OVMF/OVMF_CODE_4M.fd /usr/share/OVMF/OVMF_CODE.fd \
        /usr/share/edk2/ovmf/OVMF_CODE.fd /usr/share/qemu/ovmf-x86_64-code.bin; do
        if [ -e "$file" ]; then
            say firmware "$file"
        fi
    done
}

# What it prints ends with the last line but one; the status follows.
fabric_manager() {
    status=0
    answer=$(fmpm -l --hostname "$fabric" 2>&1) || status=$?
    say fabric "$status" "$(printf '%s' "$answer" | base64 | tr -d '\n')"
}

identity
processor
memory
functions
registers "$@"
modules
nodes
fuser=no
if fuser -V >/dev/null 2>&1; then
    fuser=yes
    # shellcheck disable=SC2046 # paths of device nodes, without blanks
    holders /dev/nvidia[0-9]* /dev/nvidiactl $(graphics_nodes "$@")
fi
software
if [ "$fabric" != - ]; then
    fabric_manager
fi
df -Pk / | awk 'NR == 2 { printf "free-gib %d\n", $4 / 1048576 }'
# The last fact, so that the time of the answer's arrival is closest to it.
say clock "$(date +%s)"
