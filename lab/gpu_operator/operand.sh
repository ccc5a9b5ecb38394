#!/bin/sh
# An operand's container on a real node of the lab: does nothing but what the stand-in of the operator says,
# by files in a folder of the node that is the pod's own.
# Usage: sh -c TEXT operand init|run NAME     POD_UID: of the pod
set -u
kind=$1 name=$2
told=/run/nvidia/stand-in/$POD_UID
trap 'exit 0' TERM

if [ "$kind" = init ]; then
    echo "stand-in of an operand of the GPU Operator: waits for $name"
    until [ -e "$told/$name.done" ]; do
        sleep 0.2
    done
    exit 0
fi
echo "stand-in of the GPU Operator's $name: nothing is installed in this container"
while :; do
    if [ -e "$told/fails" ]; then
        cat "$told/fails" >&2
        exit 1
    fi
    sleep 0.2
done
