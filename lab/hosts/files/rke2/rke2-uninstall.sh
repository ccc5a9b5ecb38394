#!/bin/sh
set -e
/usr/local/bin/rke2-killall.sh
systemctl disable rke2-server.service || true
systemctl disable rke2-agent.service || true
rm -f /usr/local/lib/systemd/system/rke2-server.service /usr/local/lib/systemd/system/rke2-agent.service
systemctl daemon-reload
rm -f /usr/local/bin/rke2 /usr/local/bin/rke2-killall.sh
rm -rf /usr/local/share/rke2
rm -rf /etc/rancher/rke2 /etc/rancher/node /etc/cni /opt/cni/bin /var/lib/kubelet /var/lib/rancher/rke2
rm -f /usr/local/bin/rke2-uninstall.sh
