#!/bin/sh
# Take out what we brought: unit, files, holds, lingering, packages, and our notes. The account and its data stay.
# Gone already: nothing to do.
# Usage: sh -s -- FILE...
set -eu
LC_ALL=C
export LC_ALL DEBIAN_FRONTEND=noninteractive
state=/var/lib/gpu-clusters/usernetes
unit=gpu-clusters-rootless-docker.service

case $(systemctl is-enabled "$unit" 2>/dev/null || true) in
"" | not-found) ;;
*) systemctl disable --quiet "$unit" ;;
esac
rm -f "$@"
if [ -f "$state/linger" ]; then
    loginctl disable-linger "$(cat "$state/linger")" || true
fi
if [ "$(cat "$state/rootful" 2>/dev/null || true)" = theirs ]; then
    systemctl enable --quiet docker.socket docker.service
    systemctl start docker.socket docker.service
fi
for name in $(cat "$state/held" 2>/dev/null || true); do
    apt-mark unhold "$name" >/dev/null 2>&1 || true
done
brought=""
for name in $(cat "$state/packages" 2>/dev/null || true); do
    # shellcheck disable=SC2016 # a format of dpkg-query, not of the shell
    case $(dpkg-query --show --showformat='${db:Status-Status}' "$name" 2>/dev/null || true) in
    installed) brought="$brought $name" ;;
    esac
done
# shellcheck disable=SC2086 # names without blanks
[ -z "$brought" ] || apt-get -o DPkg::Lock::Timeout=300 remove -y $brought </dev/null >&2
rm -f /etc/apt/sources.list.d/gpu-clusters-docker.list /etc/apt/sources.list.d/gpu-clusters-nvidia.list \
    /etc/apt/keyrings/gpu-clusters-docker.asc /etc/apt/keyrings/gpu-clusters-nvidia.asc
systemctl daemon-reload
rm -rf "$state"
