#!/bin/sh
# Let the files of this host take effect: modules, kernel parameters, limits and units of systemd. Again: does no harm.
# Usage: sh -s -- DIGEST UNIT "MODULE..."     DIGEST is noted at the end; UNIT is enabled, not started.
set -eu
umask 022
LC_ALL=C
export LC_ALL
digest=$1 unit=$2 modules=$3
state=/var/lib/gpu-clusters/usernetes
mkdir -p "$state"

# shellcheck disable=SC2086 # names without blanks
if ! modprobe -a $modules 2>/dev/null; then
    missing=""
    for module in $modules; do
        modprobe "$module" 2>/dev/null || missing="$missing $module"
    done
    # A name that the kernel has built in can be loaded too; so these are in a package that is not there.
    echo "the kernel has no modules$missing (package linux-modules-extra-$(cat /proc/sys/kernel/osrelease))" >&2
    exit 5
fi
# A line of somebody else's that cannot be set is no reason to stop; what counts is looked at afterwards.
sysctl -q --system >/dev/null 2>&1 || true
# Limits of the managers are read when they start: the system's now, the account's with its next start.
systemctl daemon-reexec
systemctl daemon-reload
systemctl enable --quiet "$unit"
printf '%s\n' "$digest" >"$state/.applied.new"
sync "$state/.applied.new"
mv -f "$state/.applied.new" "$state/applied"
