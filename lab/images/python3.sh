#!/bin/sh
# python3 of the image for proofs: lab.pods.on_processor decides what a program that measures GPUs is told.
exec /opt/gpu-clusters/bin/python -m lab.pods.on_processor "$@"
