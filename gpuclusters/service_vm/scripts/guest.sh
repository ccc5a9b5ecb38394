#!/bin/sh
# Runs a command in the service VM, over SSH from its host, with the VM's key and the host's own both checked;
# prints what it prints. How the command itself ends does not matter: what it did not say is missing.
# Usage: sh -s -- NAME ADDRESS STATE_FOLDER ACCOUNT SECONDS COMMAND
# Exit: 20 the keys are not on this host, 21 the VM was not reached or did not let in: standard error says why.
set -eu
LC_ALL=C
export LC_ALL

name=$1 address=$2 state=$3 account=$4 seconds=$5 command=$6
key=$state/$name.client_key

for file in "$key" "$state/$name.host_key.pub"; do
    [ -f "$file" ] || {
        echo "$file is missing" >&2
        exit 20
    }
done
command -v ssh >/dev/null 2>&1 || {
    echo "ssh is not installed" >&2
    exit 21
}
known=$(mktemp)
trap 'rm -f -- "$known"' EXIT
trap 'exit 129' HUP
trap 'exit 143' TERM
printf '%s %s\n' "$address" "$(cut -d ' ' -f 1,2 "$state/$name.host_key.pub")" >"$known"
status=0
# No agent, no configuration and no other key of this host: the VM's own or nothing.
ssh -n -F none -i "$key" -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=yes \
    -o UserKnownHostsFile="$known" -o GlobalKnownHostsFile=/dev/null \
    -o ConnectTimeout="$seconds" -o ServerAliveInterval="$seconds" -o ServerAliveCountMax=2 \
    "$account@$address" "$command" || status=$?
[ "$status" != 255 ] || exit 21
