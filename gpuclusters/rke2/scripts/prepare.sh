#!/bin/sh
# What a host needs before RKE2 starts: kernel parameters in force, and for the CIS profile the account that
# etcd's data belongs to. Again: changes nothing.
# Usage: sh -s -- cis|none
set -eu

profile=$1
if [ "$profile" = cis ]; then
    getent group etcd >/dev/null || groupadd --system etcd
    getent passwd etcd >/dev/null ||
        useradd --system --gid etcd --no-create-home --shell /usr/sbin/nologin --comment "etcd user" etcd
    # The archive brings the file; before the first installation it is not there yet, see install.sh.
    for file in /usr/local/share/rke2/rke2-cis-sysctl.conf /usr/share/rke2/rke2-cis-sysctl.conf; do
        if [ -f "$file" ]; then
            cp "$file" /etc/sysctl.d/60-rke2-cis.conf
            break
        fi
    done
fi
# An enabled swap makes the kubelet refuse to start, unless it was told otherwise.
if [ -r /proc/swaps ] && [ "$(sed 1d /proc/swaps | wc -l)" -gt 0 ]; then
    echo "note: this host has swap; the kubelet's failSwapOn decides whether it starts" >&2
fi
