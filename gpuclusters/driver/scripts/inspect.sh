#!/bin/sh
# Print what is known of NVIDIA's driver on this host, one "key value" per line; changes nothing.
# Usage: sh -s -- FILE...      prints "file PATH SHA256" for each of these that is there.
set -eu
LC_ALL=C
export LC_ALL
state=/var/lib/gpu-clusters/driver

say() {
    printf '%s %s\n' "$1" "$2"
}

value() {
    sed -n -e "s/^$1=//p" /etc/os-release | tr -d '"' | head -n 1
}

case " $(value ID) $(value ID_LIKE) " in
*" debian "* | *" ubuntu "*) family=debian ;;
*" rhel "* | *" fedora "* | *" centos "*) family=rhel ;;
*" suse "* | *" sles "*) family=suse ;;
*) family=other ;;
esac
say family "$family"
say system "$(value ID)"
say release "$(value VERSION_ID)"
say kernel "$(cat /proc/sys/kernel/osrelease)"
say architecture "$(uname -m)"
say boot-id "$(cat /proc/sys/kernel/random/boot_id)"
say command-line "$(cat /proc/cmdline)"

# Classes 0300 and 0302 are GPUs, 0680 are NVSwitches.
for device in /sys/bus/pci/devices/*; do
    [ -r "$device/vendor" ] && [ "$(cat "$device/vendor")" = 0x10de ] || continue
    id=$(cat "$device/device")
    case $(cat "$device/class") in
    0x0300* | 0x0302*)
        driver=""
        [ ! -L "$device/driver" ] || driver=$(basename "$(readlink "$device/driver")")
        say gpu "${device##*/} 10de:${id#0x} $driver"
        ;;
    0x0680*) say switch "${device##*/}" ;;
    esac
done
for module in nouveau nova_core; do
    [ ! -d "/sys/module/$module" ] || say nouveau yes
done
[ ! -r /proc/driver/nvidia/version ] || say nvrm "$(head -n 1 /proc/driver/nvidia/version)"
if version=$(modinfo -F version nvidia 2>/dev/null) && [ -n "$version" ]; then
    say module "$version"
    say licence "$(modinfo -F license nvidia 2>/dev/null | head -n 1)"
fi

# Everything that may belong to a driver, or to the kernel that it is for.
case $family in
debian)
    # shellcheck disable=SC2016 # a format of dpkg-query, not of the shell
    dpkg-query --show --showformat='${db:Status-Status} package ${Package} ${Version}\n' 'nvidia-*' 'cuda-drivers*' \
        'linux-modules-nvidia-*' 'linux-image-*' 'linux-headers-*' 'linux-generic*' 2>/dev/null |
        sed -n -e 's/^installed //p' || true
    ;;
rhel | suse)
    # Headers of several kernels lie side by side, so that their kernel is part of the name.
    rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE} %{ARCH}\n' 'nvidia-*' 'cuda-drivers*' 'kmod-nvidia-*' 'kernel*' |
        awk '$1 == "kernel-devel" { $1 = $1 "-" $2 "." $3 } { print "package", $1, $2 }'
    ;;
esac
[ ! -x /usr/bin/nvidia-uninstall ] || say foreign "NVIDIA's .run installer"

case $family in
debian) held=$(apt-mark showhold 2>/dev/null || true) ;;
rhel) held=$(dnf -q versionlock list 2>/dev/null | sed -e 's/-[0-9]*:.*//' || true) ;;
suse) held=$(zypper --quiet locks 2>/dev/null | sed -e 's/^[0-9 ]*| *//' -e 's/ *|.*//' || true) ;;
*) held="" ;;
esac
for name in $held; do
    say held "$name"
done
[ ! -f "$state/stream" ] || say stream "$(cat "$state/stream")"

if command -v nvidia-smi >/dev/null 2>&1; then
    status=0
    answer=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>&1) || status=$?
    say smi "$status"
    if [ "$status" = 0 ]; then
        printf '%s\n' "$answer" | sed -e '/^$/d' -e 's/^/shown /'
        nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader 2>/dev/null |
            sed -n -e 's/^\([0-9][0-9]*\), */user \1 /p' | sort -u
    else
        printf '%s\n' "$answer" | sed -e '/^$/d' -e 's/^/smi-said /' | head -n 3
    fi
fi
# One line for each unit, in this order.
set_states() {
    say fabric-manager "${1:-unknown}"
    [ $# -gt 0 ] || return 0
    shift
    for state_of; do
        case $state_of in
        active | activating) say node yes ;;
        esac
    done
}
# shellcheck disable=SC2046 # states are single words
set_states $(systemctl is-active nvidia-fabricmanager.service rke2-server.service rke2-agent.service \
    kubelet.service k3s.service k3s-agent.service 2>/dev/null || true)
say fabric-enabled "$(systemctl is-enabled nvidia-fabricmanager.service 2>/dev/null || true)"

# The last byte of the variable says it; mokutil is not everywhere.
variable=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
if command -v mokutil >/dev/null 2>&1; then
    case $(mokutil --sb-state 2>/dev/null || true) in
    *"SecureBoot enabled"*) say secure-boot enabled ;;
    esac
elif [ -r "$variable" ] && [ "$(tail -c 1 "$variable" | od -An -tu1 | tr -d ' ')" = 1 ]; then
    say secure-boot enabled
fi
case $family in
debian) [ ! -e /var/run/reboot-required ] || say reboot-required yes ;;
rhel)
    # 1: yes. Anything else is no answer, as where the program is not installed.
    status=0
    needs-restarting -r >/dev/null 2>&1 || status=$?
    [ "$status" != 1 ] || say reboot-required yes
    ;;
suse)
    status=0
    zypper needs-rebooting >/dev/null 2>&1 || status=$?
    [ "$status" != 102 ] || say reboot-required yes
    ;;
esac
for note in initramfs applied; do
    [ ! -f "$state/$note" ] || say "$note" "$(cat "$state/$note")"
done
for path; do
    if [ -f "$path" ]; then
        sum=$(sha256sum <"$path")
        say file "$path ${sum%% *}"
    fi
done
least=""
for folder in /var /boot; do
    [ -d "$folder" ] || continue
    free=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1024) }')
    if [ -z "$least" ] || [ "$free" -lt "$least" ]; then
        least=$free
    fi
done
say free-mib "${least:-1000000}"
