#!/bin/sh
# systemd's place in a machine that has none: notes what was asked of it. The one unit whose work counts is done as
# its own file says: NVIDIA's, that writes the CDI specification.
set -eu
unit=/etc/systemd/system/nvidia-cdi-refresh.service
printf '%s\n' "$*" >>/run/systemctl
case $* in
"restart nvidia-cdi-refresh.service")
    eval "$(sed -n -e 's/^Environment=/export /p' "$unit")"
    sed -n -e 's/^ExecStart=//p' "$unit" >/run/commands
    while read -r command; do
        # systemd ignores that a command with `-` before it fails.
        case $command in
        -*) eval "${command#-}" </dev/null >&2 || true ;;
        *) eval "$command" </dev/null >&2 ;;
        esac
    done </run/commands
    ;;
esac
