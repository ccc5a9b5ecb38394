#!/bin/sh
# Keep packages from being upgraded by themselves: the driver, and the kernel that its modules are for.
# Usage: sh -s -- debian|rhel|suse NAME...
set -eu
LC_ALL=C
export LC_ALL
family=$1
shift
state=/var/lib/gpu-clusters/driver
mkdir -p "$state"
# Noted first: what is held and not noted would stay so for ever.
{
    cat "$state/held" 2>/dev/null || true
    printf '%s\n' "$@"
} | sort -u >"$state/.held.new"
mv -f "$state/.held.new" "$state/held"
case $family in
debian) apt-mark hold "$@" >/dev/null ;;
rhel)
    dnf versionlock list >/dev/null 2>&1 || dnf install -y python3-dnf-plugin-versionlock >&2
    dnf -q versionlock add "$@" >/dev/null
    ;;
suse) zypper --quiet addlock "$@" >/dev/null ;;
*) exit 64 ;;
esac
