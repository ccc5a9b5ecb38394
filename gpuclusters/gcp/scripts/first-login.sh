#!/bin/sh
# Wait until cloud-init is done with this machine; without cloud-init there is nothing to wait for.
# Usage: sh -s
set -eu
LC_ALL=C
export LC_ALL

command -v cloud-init >/dev/null || exit 0
code=0
cloud-init status --wait >/dev/null 2>&1 || code=$?
# 2 is "done, with something that could be recovered": a package mirror that answered late.
case $code in
0 | 2) exit 0 ;;
esac
{
    echo "cloud-init ended with an error:"
    cloud-init status --long || true
} >&2
exit 1
