#!/bin/sh
# Remove RKE2 from this host with its own uninstaller, then what we added. Gone already: nothing to do.
set -eu
LC_ALL=C
export LC_ALL

for script in /usr/local/bin/rke2-uninstall.sh /opt/rke2/bin/rke2-uninstall.sh; do
    if [ -x "$script" ]; then
        "$script" >/dev/null 2>/tmp/gpu-clusters-rke2-uninstall.log || {
            tail -n 5 /tmp/gpu-clusters-rke2-uninstall.log >&2
            exit 1
        }
        break
    fi
done
rm -f /tmp/gpu-clusters-rke2-uninstall.log
# Left over when the uninstaller was interrupted before: it removes itself last, its data before.
rm -rf /etc/rancher/rke2 /etc/rancher/node
rm -f /etc/sysctl.d/60-rke2-cis.conf /etc/sysctl.d/90-gpu-clusters-rke2.conf \
    /etc/NetworkManager/conf.d/50-gpu-clusters-rke2.conf
rm -rf /var/lib/gpu-clusters/rke2
