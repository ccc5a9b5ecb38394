#!/bin/sh
# The account that rootless Docker belongs to.
# Usage: sh -s -- create ACCOUNT                   make it
#        sh -s -- ids ACCOUNT FIRST COUNT          subordinate ids, users and groups alike
#        sh -s -- linger ACCOUNT UID               its systemd outlives logins
#        sh -s -- restart UID                      its systemd starts anew, with what it may control now
set -eu
umask 022
LC_ALL=C
export LC_ALL
verb=$1
state=/var/lib/gpu-clusters/usernetes
mkdir -p "$state"

# A start of the manager makes its runtime folder and bus a moment later.
wait_for_bus() {
    tries=0
    until [ -e "/run/user/$1/bus" ] || [ "$tries" -ge 50 ]; do
        tries=$((tries + 1))
        sleep 0.2
    done
}

case $verb in
create) useradd --create-home --shell /bin/bash "$2" ;;
ids) usermod --add-subuids "$3-$(($3 + $4 - 1))" --add-subgids "$3-$(($3 + $4 - 1))" "$2" ;;
linger)
    printf '%s\n' "$2" >"$state/linger"
    loginctl enable-linger "$2"
    wait_for_bus "$3"
    ;;
restart)
    systemctl restart "user@$2.service"
    wait_for_bus "$2"
    ;;
*) exit 64 ;;
esac
