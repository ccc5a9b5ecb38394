#!/bin/sh
# Holds the machine for one writer until its own standard input ends, and then lets go of it.
# Arguments: who this is, in words; seconds to wait for another.
# Prints "begun", then "ready FOLDER", or "held WORDS" or "busy WORDS" with exit status 75: another writer, or a command of
# the one before that outlived its connection, which goes on as long as its lock on `work` is there.
set -eu
echo begun
if [ "$(id -u)" = 0 ]; then
    folder=/run/gpu-clusters
else
    folder=${XDG_RUNTIME_DIR:-$HOME}/.gpu-clusters
fi
umask 077
mkdir -p "$folder"
exec 8>>"$folder/writer" 9>>"$folder/work"
if ! flock -w "$2" 8; then
    echo "held $(cat "$folder/holder" 2>/dev/null || :)"
    exit 75
fi
if ! flock -w "$2" 9; then
    echo "busy $(cat "$folder/holder" 2>/dev/null || :)"
    exit 75
fi
flock -u 9
echo "$1" >"$folder/holder"
echo "ready $folder"
exec 9>&-
while read -r _; do :; done
: >"$folder/holder"
