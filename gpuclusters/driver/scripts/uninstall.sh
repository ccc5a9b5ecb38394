#!/bin/sh
# Remove the packages that install.sh brought, the holds, and our notes. Gone already: nothing to do.
# Usage: sh -s -- debian|rhel|suse|other
set -eu
LC_ALL=C
export LC_ALL DEBIAN_FRONTEND=noninteractive
family=$1
state=/var/lib/gpu-clusters/driver
held=$(cat "$state/held" 2>/dev/null || true)
brought=""
for name in $(cat "$state/packages" 2>/dev/null || true); do
    case $family in
    debian)
        # shellcheck disable=SC2016 # a format of dpkg-query, not of the shell
        case $(dpkg-query --show --showformat='${db:Status-Status}' "$name" 2>/dev/null || true) in
        installed) brought="$brought $name" ;;
        esac
        ;;
    *) ! rpm -q "$name" >/dev/null 2>&1 || brought="$brought $name" ;;
    esac
done
if [ "$(systemctl is-enabled nvidia-fabricmanager.service 2>/dev/null || true)" = enabled ]; then
    case " $brought " in
    *fabricmanager*)
        systemctl disable --quiet nvidia-fabricmanager.service
        systemctl stop nvidia-fabricmanager.service
        ;;
    esac
fi
# shellcheck disable=SC2086 # names without blanks
case $family in
debian)
    for name in $held; do
        apt-mark unhold "$name" >/dev/null 2>&1 || true
    done
    [ -z "$brought" ] || apt-get -o DPkg::Lock::Timeout=300 remove -y $brought >&2
    ;;
rhel)
    [ -z "$held" ] || dnf -q versionlock delete $held >/dev/null 2>&1 || true
    [ -z "$brought" ] || dnf remove -y $brought >&2
    ;;
suse)
    [ -z "$held" ] || zypper --quiet removelock $held >/dev/null 2>&1 || true
    [ -z "$brought" ] || zypper --non-interactive remove $brought >&2
    ;;
esac
rm -rf "$state"
