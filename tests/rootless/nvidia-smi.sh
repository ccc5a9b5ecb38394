#!/bin/sh
# What the scripts read of nvidia-smi, of the same GPUs as the stand-in of NVML.
if [ -z "${GPU_UUIDS:-}" ]; then
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    exit 9
fi
case $1 in
-L) printf '%s\n' "$GPU_UUIDS" | tr , '\n' | awk '{ printf "GPU %d: Tesla V100-SXM2-16GB (UUID: %s)\n", NR - 1, $0 }' ;;
*) printf '%s\n' "$GPU_UUIDS" | tr , '\n' ;;
esac
