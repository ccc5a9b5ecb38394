#!/bin/sh
# Install packages in exactly these versions. A repository is set up only where the host's own sources do not have
# what is wanted: mirrors in closed networks stay what they are. What was not there before is noted.
# Usage: sh -s -- NAME=VERSION...      VERSION may end in "*" and may be empty.
set -eu
umask 022
LC_ALL=C
export LC_ALL DEBIAN_FRONTEND=noninteractive
state=/var/lib/gpu-clusters/usernetes
mkdir -p "$state"

# Usage: repository NAME ADDRESS-OF-KEY FINGERPRINT "LINE OF SOURCES, WITH %s FOR THE KEY"
repository() {
    name=$1 address=$2 fingerprint=$3 line=$4
    key=/etc/apt/keyrings/gpu-clusters-$name.asc
    mkdir -p /etc/apt/keyrings /etc/apt/sources.list.d
    new=$(mktemp)
    curl --fail --silent --show-error --location --retry 3 --output "$new" "$address" || {
        rm -f "$new"
        echo "the key of the repository $name cannot be fetched from $address" >&2
        exit 7
    }
    found=$(gpg --show-keys --with-colons "$new" 2>/dev/null | awk -F: '$1 == "fpr" { print $10; exit }')
    if [ "$found" != "$fingerprint" ]; then
        rm -f "$new"
        echo "the key at $address has the fingerprint ${found:-none}, not $fingerprint" >&2
        exit 8
    fi
    chmod 0644 "$new"
    mv -f "$new" "$key"
    # shellcheck disable=SC2059 # the line is a format of ours
    printf "$line\n" "$key" >"/etc/apt/sources.list.d/gpu-clusters-$name.list"
}

names=""
for one; do
    names="$names ${one%%=*}"
done
# shellcheck disable=SC2016 # a format of dpkg-query, not of the shell
installed=$(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n -e 's/^installed //p')

there() {
    printf '%s\n' "$installed" | grep -qx -- "$1"
}

# Nothing here may read standard input, which is the rest of this script.
# What an installation that was cut off left: apt refuses everything until it is finished.
[ -z "$(dpkg --audit 2>/dev/null || true)" ] || dpkg --configure -a </dev/null >&2
apt-get -o DPkg::Lock::Timeout=300 -qq update </dev/null >&2
# What setting up a repository needs itself.
tools=""
for tool in curl gpg ca-certificates; do
    there "$tool" || tools="$tools $tool"
done
# shellcheck disable=SC2086 # names without blanks
[ -z "$tools" ] || apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $tools </dev/null >&2
# What the host's sources have.
# shellcheck disable=SC2086
offers=$(apt-cache madison $names 2>/dev/null | awk -F'|' '{ gsub(/ /, ""); print $1 "=" $2 }')
docker=no nvidia=no
for one; do
    case $offers in
    *"${one%\*}"*) continue ;;
    esac
    case $one in
    docker-* | containerd.io*) docker=yes ;;
    *nvidia-container*) nvidia=yes ;;
    esac
done
architecture=$(dpkg --print-architecture 2>/dev/null || echo amd64)
codename=$(sed -n -e 's/^VERSION_CODENAME=//p' /etc/os-release | tr -d '"')
if [ "$docker" = yes ]; then
    repository docker https://download.docker.com/linux/ubuntu/gpg 9DC858229FC7DD38854AE2D88D81803C0EBFCD88 \
        "deb [arch=$architecture signed-by=%s] https://download.docker.com/linux/ubuntu $codename stable"
fi
if [ "$nvidia" = yes ]; then
    repository nvidia https://nvidia.github.io/libnvidia-container/gpgkey C95B321B61E88C1809C4F759DDCAE044F796ECB0 \
        "deb [signed-by=%s] https://nvidia.github.io/libnvidia-container/stable/deb/$architecture /"
fi
case $docker$nvidia in
*yes*) apt-get -o DPkg::Lock::Timeout=300 -qq update </dev/null >&2 ;;
esac

# Docker as root starts with its package unless it is told before that it must not: nobody wants it here.
there docker-ce || printf '%s\n' ours >"$state/rootful"
for one; do
    shift
    name=${one%%=*}
    there "$name" || grep -qx -- "$name" "$state/packages" 2>/dev/null || printf '%s\n' "$name" >>"$state/packages"
    case $one in *=) one=${one%=} ;; esac
    set -- "$@" "$one"
done
sync "$state"
# Held by ourselves for as long as nobody asks for another version.
# shellcheck disable=SC2086 # names without blanks
apt-mark unhold $names >/dev/null 2>&1 || true
apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends --allow-downgrades "$@" </dev/null >&2
