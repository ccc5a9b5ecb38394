#!/bin/sh
# Print what a host boots with: lines of a word and its value. Reads only.
# Sent after vfio_users.sh. Usage: sh -s -- GRUB_FILE ARGUMENTS_FILE INITRAMFS_STAMP FILE...
# FILE: files of which "files PATH SHA256|- MODE USER:GROUP MARKED" is printed. For those of sysctl.d, and for
# drop-ins of units, also "sysctl-behind" and "units-behind" where they are written and not yet in effect.
set -eu
LC_ALL=C
export LC_ALL
ours=$1 arguments=$2 stamp=$3
shift 3

method_of() {
    words=$(sed -n -e 's/^ID=//p' -e 's/^ID_LIKE=//p' /etc/os-release | tr -d '"' | tr '\n' ' ')
    case " $words " in
    *" debian "* | *" ubuntu "*) [ ! -f /etc/default/grub ] || echo grub.d ;;
    *" rhel "* | *" fedora "* | *" centos "*) ! command -v grubby >/dev/null 2>&1 || echo grubby ;;
    esac
}

# As grub-mkconfig reads it, without our file.
others_of_grub() (
    set +eu
    GRUB_CMDLINE_LINUX="" GRUB_CMDLINE_LINUX_DEFAULT=""
    # shellcheck source=/dev/null
    . /etc/default/grub
    for file in /etc/default/grub.d/*.cfg; do
        if [ -f "$file" ] && [ "$file" != "$ours" ]; then
            # shellcheck source=/dev/null
            . "$file"
        fi
    done
    printf '%s %s\n' "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"
)

# Whether the kernel has another value than a file of sysctl.d says. What a later file sets too is that one's.
sysctl_behind() {
    sed -n -e 's/^ *\([a-z][a-z0-9_./-]*\) *= *\(.*\)$/\1 \2/p' -- "$1" | while read -r key wanted; do
        last=$(grep -ls "^ *$key *=" /etc/sysctl.d/*.conf | tail -n 1)
        [ "$last" = "$1" ] || continue
        now=$(sysctl -n "$key" 2>/dev/null </dev/null) || continue
        [ "$now" = "$wanted" ] || echo "$key"
    done
}

method=$(method_of)
echo "boot-id $(cat /proc/sys/kernel/random/boot_id)"
echo "running $(cat /proc/cmdline)"
echo "method ${method:-none}"
case $method in
grub.d)
    echo "others $(others_of_grub)"
    next=$(sed -n -e '/^[[:space:]]*linux/{s/^[[:space:]]*linux[a-z0-9]*[[:space:]]*[^[:space:]]*[[:space:]]*//p;q;}' \
        /boot/grub/grub.cfg 2>/dev/null || true)
    echo "next-boot $next"
    # shellcheck disable=SC2016 # the text of a file of shell, as it is written there
    added=$(sed -n -e 's/^GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX:+$GRUB_CMDLINE_LINUX }\(.*\)"$/\1/p' "$ours" 2>/dev/null || true)
    echo "ours $added"
    # Written, and then cut off before the boot loader was told.
    [ ! "$ours" -nt /boot/grub/grub.cfg ] || echo "loader-behind yes"
    ;;
grubby)
    echo "next-boot $(grubby --info=DEFAULT | sed -n -e 's/^args="\(.*\)"$/\1/p')"
    echo "ours $(sed -e '/^#/d' "$arguments" 2>/dev/null | tr '\n' ' ' || true)"
    ;;
esac
echo "initramfs $(cat "$stamp" 2>/dev/null || true)"
for folder in /sys/devices/system/node/node[0-9]*; do
    pages=$folder/hugepages/hugepages-1048576kB/nr_hugepages
    [ ! -r "$pages" ] || echo "huge-pages-1g ${folder##*/node} $(cat "$pages")"
done
set -- "$@" --
# The control node `vfio` is on every machine; whoever has a device has its group or its own node too.
for node in /dev/vfio/* /dev/vfio/devices/*; do
    [ "$node" = /dev/vfio/vfio ] || { [ ! -c "$node" ] && [ ! -f "$node" ]; } || set -- "$@" "$node"
done
while [ "$1" != -- ]; do
    if [ -f "$1" ]; then
        sum=$(sha256sum <"$1")
        marked=foreign
        ! grep -q 'Written by gpu-clusters' "$1" || marked=ours
        echo "files $1 ${sum%% *} $(stat -L -c '%a %U:%G' -- "$1") $marked"
        case $1 in
        /etc/sysctl.d/*)
            [ -z "$(sysctl_behind "$1")" ] || echo "sysctl-behind yes"
            ;;
        /etc/systemd/system/*.d/*)
            unit=${1%/*}
            unit=${unit##*/}
            [ "$(systemctl show -p NeedDaemonReload --value "${unit%.d}" 2>/dev/null)" != yes ] ||
                echo "units-behind yes"
            ;;
        esac
    else
        echo "files $1 -"
    fi
    shift
done
shift
if [ $# -gt 0 ]; then
    if ! command -v fuser >/dev/null 2>&1 || ! users=$(holders_of "$@" 2>/dev/null); then
        echo "device-users unknown"
    elif [ -n "$users" ]; then
        # shellcheck disable=SC2086 # process ids, one per line
        echo "device-users" $users
    fi
fi
