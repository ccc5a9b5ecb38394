#!/bin/sh
# Make what was written take effect at the next boot, and now where that is possible.
# Usage: sh -s -- METHOD LOADER INITRAMFS STAMP SYSCTL RELOAD REMOVED ADDED
# METHOD grub.d or grubby. LOADER, RELOAD: yes or no. INITRAMFS: digest to note in STAMP after a build, or no.
# SYSCTL: a file to load, or no. REMOVED, ADDED: arguments for grubby, each list as one word with blanks.
set -eu
LC_ALL=C
export LC_ALL
method=$1 loader=$2 initramfs=$3 stamp=$4 sysctl_file=$5 reload=$6 removed=$7 added=$8

if [ "$loader" = yes ]; then
    case $method in
    grub.d)
        if command -v update-grub >/dev/null 2>&1; then
            update-grub
        else
            grub-mkconfig -o /boot/grub/grub.cfg
        fi
        ;;
    grubby)
        # All entries, so that an older kernel from the menu has them too; new kernels get them from the default one.
        [ -z "$removed" ] || grubby --update-kernel=ALL --remove-args="$removed"
        [ -z "$added" ] || grubby --update-kernel=ALL --args="$added"
        ;;
    *) exit 64 ;;
    esac
fi
if [ "$initramfs" != no ]; then
    case $method in
    grub.d) update-initramfs -u -k all ;;
    *) dracut --force --regenerate-all ;;
    esac
    mkdir -p -- "$(dirname -- "$stamp")"
    # Noted last: a build that was cut off is done again.
    printf '%s\n' "$initramfs" >"$stamp"
fi
[ "$reload" = no ] || systemctl daemon-reload
[ "$sysctl_file" = no ] || sysctl -p "$sysctl_file" >/dev/null
