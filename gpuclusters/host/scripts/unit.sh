#!/bin/sh
# One systemd unit: what it is like, and bringing it to what it should be.
# Usage: sh -s -- state UNIT
#        sh -s -- apply UNIT enabled|disabled active|inactive|keep restart|keep
#        sh -s -- remove UNIT      before its file is removed
# state prints: enabled|disabled|static|not-found|... active|inactive|failed|... yes|no (needs daemon-reload)
set -eu
LC_ALL=C
export LC_ALL
verb=$1 unit=$2

word() {
    value=$(systemctl "$1" "$unit" 2>/dev/null || true)
    printf '%s' "${value:-unknown}"
}

failed() {
    echo "error: $1; the last lines of its journal:" >&2
    journalctl --no-pager -o cat -n 12 -u "$unit" >&2 || true
    exit 1
}

case $verb in
state)
    printf '%s %s %s\n' "$(word is-enabled)" "$(word is-active)" \
        "$(systemctl show -p NeedDaemonReload --value "$unit" 2>/dev/null || echo no)"
    ;;
apply)
    enabled=$3 active=$4 restart=$5
    systemctl daemon-reload
    case $enabled in
    enabled) systemctl enable --quiet "$unit" ;;
    *) systemctl disable --quiet "$unit" ;;
    esac
    case $active in
    active)
        if [ "$restart" = restart ] || [ "$(word is-active)" = failed ]; then
            systemctl reset-failed "$unit" 2>/dev/null || true
            systemctl restart "$unit" || failed "$unit does not start"
        else
            systemctl start "$unit" || failed "$unit does not start"
        fi
        ;;
    inactive) systemctl stop "$unit" ;;
    esac
    ;;
remove)
    case $(word is-enabled) in
    not-found | unknown) exit 0 ;;
    esac
    systemctl disable --quiet "$unit" || true
    systemctl stop "$unit"
    ;;
*) exit 64 ;;
esac
