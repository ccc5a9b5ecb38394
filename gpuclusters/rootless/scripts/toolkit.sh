#!/bin/sh
# NVIDIA's container toolkit of the host.
# Usage: sh -s -- runtime     CDI mode; not no-cgroups, which fails in the containers of a container
#        sh -s -- cdi         the specification is written now, at every boot and with every driver
set -eu
LC_ALL=C
export LC_ALL
case $1 in
runtime)
    nvidia-ctk config --in-place --set nvidia-container-runtime.mode=cdi --set nvidia-container-cli.no-cgroups=false >&2
    ;;
cdi)
    # Nobody writes this one anew, and it would name GPUs of another machine one day.
    if [ -e /etc/cdi/nvidia.yaml ]; then
        mv -f /etc/cdi/nvidia.yaml /etc/cdi/nvidia.yaml.replaced-by-gpu-clusters
    fi
    systemctl daemon-reload
    systemctl enable --quiet nvidia-cdi-refresh.path nvidia-cdi-refresh.service
    systemctl start nvidia-cdi-refresh.path
    systemctl restart nvidia-cdi-refresh.service || {
        journalctl --no-pager -o cat -n 5 -u nvidia-cdi-refresh.service >&2 || true
        exit 1
    }
    ;;
*) exit 64 ;;
esac
