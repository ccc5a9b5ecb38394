#!/bin/sh
# Install the packages of a driver in exactly these versions. What was not there before is noted, so that it can be
# taken out again.
# Usage: sh -s -- debian|rhel|suse STREAM NAME=VERSION...
#   STREAM: module stream of dnf, or none. VERSION may end in "*" and may be empty.
set -eu
LC_ALL=C
export LC_ALL DEBIAN_FRONTEND=noninteractive
family=$1 stream=$2
shift 2
state=/var/lib/gpu-clusters/driver
mkdir -p "$state"
held=$(cat "$state/held" 2>/dev/null || true)

there() {
    if [ "$family" = debian ]; then
        # shellcheck disable=SC2016 # a format of dpkg-query, not of the shell
        case $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null || true) in
        installed) return 0 ;;
        esac
        return 1
    fi
    rpm -q "$1" >/dev/null 2>&1
}

# The newest version in the repositories that begins like this: zypper takes whole versions alone.
suse_version() {
    zypper --quiet --non-interactive search --details --match-exact "$1" |
        awk -F'|' -v start="$2" '{ gsub(/ /, "", $4) } index($4, start) == 1 { print $4; exit }'
}

names=""
for one; do
    names="$names ${one%%=*}"
done
for name in $names; do
    if ! there "$name" && ! grep -qx -- "$name" "$state/packages" 2>/dev/null; then
        printf '%s\n' "$name" >>"$state/packages"
    fi
done
sync "$state"

case $family in
debian)
    # Held by ourselves for as long as nobody asks for another version.
    # shellcheck disable=SC2086 # names without blanks
    for name in $names $held; do
        apt-mark unhold "$name" >/dev/null 2>&1 || true
    done
    for one; do
        shift
        case $one in *=) one=${one%=} ;; esac
        set -- "$@" "$one"
    done
    # At boot unattended-upgrades holds the lock for minutes.
    apt-get -o DPkg::Lock::Timeout=300 -qq update >&2
    apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends --allow-downgrades "$@" >&2
    ;;
rhel)
    # shellcheck disable=SC2086
    dnf -q versionlock delete $names $held >/dev/null 2>&1 || true
    if [ "$stream" != none ] && [ "$(cat "$state/stream" 2>/dev/null || true)" != "$stream" ]; then
        dnf module reset -y nvidia-driver >&2
        dnf module enable -y "nvidia-driver:$stream" >&2
        printf '%s\n' "$stream" >"$state/stream"
    fi
    for one; do
        shift
        version=${one#*=}
        set -- "$@" "${one%%=*}${version:+-$version}"
    done
    dnf install -y --allowerasing --setopt=install_weak_deps=False "$@" >&2
    ;;
suse)
    # shellcheck disable=SC2086
    zypper --quiet removelock $names $held >/dev/null 2>&1 || true
    for one; do
        shift
        name=${one%%=*} version=${one#*=}
        if [ -n "$version" ]; then
            found=$(suse_version "$name" "${version%\*}")
            [ -n "$found" ] || {
                echo "Package '$name' not found in version $version" >&2
                exit 104
            }
            version=$found
        fi
        set -- "$@" "$name${version:+=$version}"
    done
    zypper --non-interactive install --auto-agree-with-licenses --allow-downgrade "$@" >&2
    ;;
*) exit 64 ;;
esac
