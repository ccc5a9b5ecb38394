#!/bin/sh
# Load the driver's module; when that fails, say what the kernel said about it too.
set -eu
LC_ALL=C
export LC_ALL
modprobe nvidia || {
    journalctl -k -n 200 -o cat --no-pager 2>/dev/null | grep NVRM | tail -n 3 >&2 || true
    exit 1
}
# Its own device nodes, which a container runtime looks for; made by whoever asks first.
modprobe nvidia_uvm 2>/dev/null || true
