#!/bin/sh
# The program of the stand-in image: what runs where a pod asks for an image that the lab does not have.
# Says so, then waits until it is told to end. STAND_IN_ENDS=STATUS: ends at once with that exit status, for
# containers that have to end before others start.
set -eu

# The first process of a container has no default actions, and a shell acts on a signal only between commands.
# Before a word is said: who reads it may tell this program to end at once.
trap 'exit 143' TERM
trap 'exit 130' INT

printf 'stand-in image: busybox alone, because the lab has no registry with the image that was asked for\n'
printf 'asked to run: %s\n' "$*"
if [ -n "${STAND_IN_ENDS:-}" ]; then
    exit "$STAND_IN_ENDS"
fi

while :; do
    sleep 86400 &
    wait
done
