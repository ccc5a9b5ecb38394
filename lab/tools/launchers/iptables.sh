#!/bin/sh
# iptables and its relatives out of unpacked Debian packages: called under the name of one of them, by a link.
set -eu
tree=$(dirname "$(readlink -f "$0")")/root
for libraries in "$tree"/usr/lib/*-linux-gnu; do
  export LD_LIBRARY_PATH="$libraries" XTABLES_LIBDIR="$libraries/xtables"
done
exec "$tree/usr/sbin/xtables-nft-multi" "$(basename "$0")" "$@"
