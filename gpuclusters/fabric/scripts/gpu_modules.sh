#!/bin/sh
# Ask the GPUs themselves in which slot of the baseboard they sit. Prints a line per GPU:
#   "modules ADDRESS MODULE"   as it answers, or answered since this boot: slots do not move while it runs
#   "held ADDRESS PID,PID"   a process has it; its registers are not touched
#   "silent ADDRESS"         it was asked and did not answer
# and what NVIDIA's tool said of those that did not, each line after "said ".
# Answers are kept in /run until the next boot, so that GPUs that VMs hold by then are known.
# nvidia_gpu_tools.py reads registers and changes nothing; like everybody who calls it, this one
# holds the lock of each GPU, its folder in /sys, meanwhile.
# Sent after vfio_users.sh.
# Usage: sh -s -- ADDRESS...
# Exit: 3 nvidia_gpu_tools.py is not installed, 5 open files cannot be asked for.
set -eu
LC_ALL=C
export LC_ALL
umask 077
folder=/run/gpu-clusters
file=$folder/gpu-modules
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo unknown)

known=""
if [ -f "$file" ] && [ "$(sed -n 1p "$file")" = "boot $boot" ]; then
    known=$(sed -n -e '2,$p' "$file")
fi
module_of() {
    printf '%s\n' "$known" | sed -n -e "s/^$1 \\([0-9][0-9]*\\)\$/\\1/p" | sed -n 1p
}

ask=""
held_by=""
for address; do
    if [ -z "$(module_of "$address")" ]; then
        ask="$ask $address"
    fi
done
if [ -n "$ask" ]; then
    require_fuser
    # shellcheck disable=SC2086 # addresses, separated by blanks
    users_of $ask
    if [ -n "$held" ]; then
        free=""
        for address in $ask; do
            users_of "$address"
            if [ -n "$held" ]; then
                held_by="$held_by$address $held
"
            else
                free="$free $address"
            fi
        done
        ask=$free
    fi
fi
said=""
if [ -n "$ask" ]; then
    all="$*"
    # shellcheck disable=SC2086 # addresses, separated by blanks
    list=$(printf '%s,' $ask)
    set -- nvidia_gpu_tools.py --devices "${list%,}" --query-module-name
    for address in $ask; do
        if [ -d "/sys/bus/pci/devices/$address" ]; then
            set -- flock --wait 30 "/sys/bus/pci/devices/$address" "$@"
        fi
    done
    status=0
    said=$("$@" 2>&1 >/dev/null) || status=$?
    if [ "$status" -eq 127 ] || { [ "$status" -ne 0 ] && ! command -v nvidia_gpu_tools.py >/dev/null 2>&1; }; then
        echo "nvidia_gpu_tools.py is not installed" >&2
        exit 3
    fi
    answered=$(printf '%s\n' "$said" | sed -n -e 's/^.* GPU \([0-9a-f:.]*\) .*module name SXM_\([0-9][0-9]*\)$/\1 \2/p')
    if [ -n "$answered" ]; then
        known="$known
$answered"
        mkdir -p "$folder"
        {
            echo "boot $boot"
            printf '%s\n' "$known" | sed -e '/^$/d'
        } >"$file.new"
        mv "$file.new" "$file"
    fi
    # shellcheck disable=SC2086 # addresses, separated by blanks
    set -- $all
fi
silent=""
for address; do
    module=$(module_of "$address")
    if [ -n "$module" ]; then
        printf 'modules %s %s\n' "$address" "$module"
        continue
    fi
    pids=$(printf '%s' "$held_by" | sed -n -e "s/^$address //p")
    if [ -n "$pids" ]; then
        printf 'held %s %s\n' "$address" "$pids"
    else
        silent=yes
        printf 'silent %s\n' "$address"
    fi
done
if [ -n "$silent" ]; then
    printf '%s\n' "$said" | sed -n -e '/ \(ERROR\|WARNING\) /p' -e '/^[A-Za-z.]*Error/p' | tail -n 5 | sed -e 's/^/said /'
fi
