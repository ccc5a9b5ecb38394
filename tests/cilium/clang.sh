#!/bin/sh
# clang out of unpacked Debian packages.
set -eu
tree=$(dirname "$(readlink -f "$0")")/root
for libraries in "$tree"/usr/lib/*-linux-gnu; do
  export LD_LIBRARY_PATH="$libraries"
done
exec "$tree"/usr/lib/llvm-19/bin/clang "$@"
