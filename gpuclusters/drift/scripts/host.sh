#!/bin/sh
# Print what of this host no resource of the stack looks at, one "key value" per line; changes nothing.
set -eu
LC_ALL=C
export LC_ALL

say() {
    printf '%s %s\n' "$1" "$2"
}

# Debian and Ubuntu leave a file; the others have a command that says it by its exit status.
if [ -e /run/reboot-required ] || [ -e /var/run/reboot-required ]; then
    say reboot-required "$(tr '\n' ' ' 2>/dev/null </run/reboot-required.pkgs || true)"
fi

if command -v systemctl >/dev/null; then
    # All units and a filter of our own: `--failed` also lists units that were stopped in the meantime.
    systemctl list-units --all --plain --no-legend --no-pager | awk '$3 == "failed" { print "failed-unit " $1 }'
fi
say end -
