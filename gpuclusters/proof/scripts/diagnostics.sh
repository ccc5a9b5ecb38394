#!/bin/sh
# DCGM's diagnostics of all GPUs of one node, as JSON: diagnostics.sh HOST LEVEL
# HOST is where the node's own host engine listens; this container is only its client and needs no privilege.
set -eu
host=$1
level=$2
exec dcgmi diag --host "$host" -r "$level" -j
