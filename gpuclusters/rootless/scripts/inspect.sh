#!/bin/sh
# Print what is known of a host that runs rootless Docker, one "key value" per line; changes nothing. It needs no
# root, and says less without.
# Usage: sh -s -- ACCOUNT "MODULE..." FILE...    prints "file PATH SHA256" for each of these files that is there.
set -eu
LC_ALL=C
# Where an account has no sudo, its own PATH may lack these.
PATH=$PATH:/usr/sbin:/sbin
export LC_ALL PATH
account=$1 modules=$2
shift 2
state=/var/lib/gpu-clusters/usernetes

say() {
    printf '%s %s\n' "$1" "$2"
}

value() {
    sed -n -e "s/^$1=//p" /etc/os-release | tr -d '"' | head -n 1
}

say system "$(value ID)"
say release "$(value VERSION_ID)"
say architecture "$(uname -m)"
say kernel "$(cat /proc/sys/kernel/osrelease)"
say boot-id "$(cat /proc/sys/kernel/random/boot_id)"
if [ -f /sys/fs/cgroup/cgroup.controllers ] || [ -d /sys/fs/cgroup/user.slice ]; then
    say cgroup v2
elif [ -d /sys/fs/cgroup/memory ]; then
    say cgroup v1
fi

uid=$(id -u "$account" 2>/dev/null || true)
if [ -n "$uid" ]; then
    home=$(getent passwd "$account" | cut -d: -f6)
    say uid "$uid"
    say home "$home"
    ! grep -q "^$account:" /etc/passwd || say local yes
    [ ! -d "$home" ] || say free-mib "$(df -Pk "$home" | awk 'NR == 2 { print int($4 / 1024) }')"
    # getsubids also knows ranges of a directory service; without it only the files do.
    if found=$(getsubids "$account" 2>/dev/null); then
        printf '%s\n' "$found" | awk '{ print "subuid", $3, $4 }'
        getsubids -g "$account" 2>/dev/null | awk '{ print "subgid", $3, $4 }' || true
    elif ! dpkg-query --show --showformat='${db:Status-Status}' uidmap 2>/dev/null | grep -qx installed; then
        for kind in uid gid; do
            awk -F: -v name="$account" -v key="sub$kind" '$1 == name { print key, $2, $3 }' "/etc/sub$kind" 2>/dev/null || true
        done
    fi
    [ ! -f "/var/lib/systemd/linger/$account" ] || say linger yes
    say manager "$(systemctl is-active "user@$uid.service" 2>/dev/null || true)"
    controllers=/sys/fs/cgroup/user.slice/user-$uid.slice/user@$uid.service/cgroup.controllers
    [ ! -r "$controllers" ] || say controllers "$(cat "$controllers")"
fi
for file in /etc/subuid /etc/subgid; do
    [ ! -r "$file" ] || awk -F: 'NF == 3 { print "taken", $2, $3 }' "$file"
done

# shellcheck disable=SC2016 # a format of dpkg-query, not of the shell
dpkg-query --show --showformat='${db:Status-Status} package ${Package} ${Version}\n' 'docker*' 'containerd*' \
    uidmap slirp4netns dbus-user-session iptables jq make git curl gpg ca-certificates iproute2 '*nvidia-container*' \
    'linux-image-*' 'linux-headers-*' 'linux-generic*' 'linux-gcp*' 'linux-aws*' 'linux-azure*' 'linux-virtual*' \
    2>/dev/null | sed -n -e 's/^installed //p' || true
apt-mark showhold 2>/dev/null | sed -e '/^$/d' -e 's/^/held /' || true

builtin=/lib/modules/$(uname -r)/modules.builtin
loaded=$(lsmod 2>/dev/null | awk 'NR > 1 { printf "%s ", $1 }')
for module in $modules; do
    case " $loaded" in
    *" $module "*) ;;
    *) grep -q "/$module\.ko" "$builtin" 2>/dev/null || say module-missing "$module" ;;
    esac
done
# The last one is Ubuntu's alone; where it is missing the others are said all the same.
sysctl net.ipv4.conf.default.rp_filter net.ipv4.ip_unprivileged_port_start \
    kernel.apparmor_restrict_unprivileged_userns 2>/dev/null | sed -e 's/^/sysctl /' -e 's/ = / /' || true

units=$(systemctl show -p Id,ActiveState,UnitFileState docker.service docker.socket nvidia-cdi-refresh.service \
    nvidia-cdi-refresh.path gpu-clusters-rootless-docker.service 2>/dev/null |
    awk -F= '$1 == "Id" { id = $2 } $1 == "ActiveState" { print "active", id, $2 }
        $1 == "UnitFileState" { print "enabled", id, $2 }' || true)
printf '%s\n' "$units"

# A daemon that runs as root: its socket, its containers.
[ ! -e /var/run/docker.sock ] || say rootful /var/run/docker.sock
case $units in
*"active docker.service active"*)
    if [ -w /var/run/docker.sock ]; then
        docker --host=unix:///var/run/docker.sock ps -a -q 2>/dev/null | sed -e '/^$/d' -e 's/^/rootful-container /' || true
    fi
    ;;
esac

# One table of TOML is enough to know which mode and whether cgroups are left alone.
config=/etc/nvidia-container-runtime/config.toml
if [ -r "$config" ]; then
    awk '/^\[/ { table = $0 }
        table == "[nvidia-container-runtime]" && $1 == "mode" { gsub(/"/, "", $3); print "runtime-mode", $3 }
        table == "[nvidia-container-cli]" && $1 == "no-cgroups" { print "no-cgroups", $3 }' "$config"
fi
[ ! -e /etc/cdi/nvidia.yaml ] || say static-cdi yes
if command -v nvidia-ctk >/dev/null 2>&1; then
    nvidia-ctk cdi list 2>/dev/null | sed -e '/^nvidia\.com\/gpu=/!d' -e 's/^/cdi /' || true
fi

modinfo nvidia 2>/dev/null | sed -n -e 's/^version: */module /p' -e 's/^license: */licence /p' || true
for device in /sys/bus/pci/devices/*; do
    [ -r "$device/vendor" ] && [ "$(cat "$device/vendor")" = 0x10de ] || continue
    case $(cat "$device/class") in
    0x0300* | 0x0302*) id=$(cat "$device/device") && say pci-gpu "10de:${id#0x}" ;;
    esac
done
if command -v nvidia-smi >/dev/null 2>&1; then
    status=0
    answer=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>&1) || status=$?
    say smi "$status"
    if [ "$status" = 0 ]; then
        printf '%s\n' "$answer" | sed -e '/^$/d' -e 's/^/gpu /'
    else
        printf '%s\n' "$answer" | sed -e '/^$/d' -e 's/^/smi-said /' | head -n 3
    fi
fi
if command -v ss >/dev/null 2>&1; then
    say ports "$(ss -Hltn 2>/dev/null | awk '{ sub(/.*:/, "", $4); print $4 }' | sort -un | tr '\n' ' ')"
fi
for note in applied passed; do
    [ ! -f "$state/$note" ] || say "$note" "$(cat "$state/$note")"
done
for path; do
    if [ -f "$path" ]; then
        sum=$(sha256sum <"$path")
        say file "$path ${sum%% *}"
    fi
done
