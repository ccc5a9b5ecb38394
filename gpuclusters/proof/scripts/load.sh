#!/bin/sh
# Load on the tensor cores of all GPUs of this container: load.sh CUDA_MAJOR SECONDS
# 1004 is the field of the tensor pipe. Without DCGM's validation: whether it is seen is asked of Prometheus.
set -eu
exec "dcgmproftester$1" --no-dcgm-validation -t 1004 -d "$2"
