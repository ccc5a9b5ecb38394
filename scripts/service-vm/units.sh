#!/bin/sh
# Lets systemd read its units anew and enables those that are named. Nothing is started or stopped: the VM is
# started by whoever waits for it.
# Usage: sh -s -- UNIT...
set -eu

systemctl daemon-reload
for unit; do
    systemctl enable "$unit"
done
