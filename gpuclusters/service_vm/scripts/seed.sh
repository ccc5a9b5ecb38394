#!/bin/sh
# Makes the seed that cloud-init in the VM reads, from the files in the tar on standard input of `main` plus
# the keys of the VM, which are made here once and never leave the host.
# Usage: sh -s -- NAME SEED DIGEST STATE_FOLDER ACCOUNT
# Exit: 20 no tool that makes ISO images.
set -eu
LC_ALL=C
export LC_ALL
umask 077

name=$1 seed=$2 digest=$3 state=$4 account=$5

key() { # FILE COMMENT
    [ -f "$1" ] && [ -f "$1.pub" ] && return 0
    rm -f -- "$1" "$1.pub"
    ssh-keygen -q -t ed25519 -N '' -C "$2" -f "$1"
}

vendor_data() {
    echo '#cloud-config'
    echo 'ssh_keys:'
    echo '  ed25519_private: |'
    sed 's/^/    /' "$state/$name.host_key"
    printf '  ed25519_public: %s\n' "$(cut -d ' ' -f 1,2 "$state/$name.host_key.pub")"
    # The only account; its host's root enters with a key, nobody with a password.
    echo 'users:'
    printf -- '- name: %s\n' "$account"
    echo '  groups: [adm, systemd-journal]'
    echo '  shell: /bin/bash'
    echo '  sudo: ALL=(ALL) NOPASSWD:ALL'
    echo '  lock_passwd: true'
    echo '  ssh_authorized_keys:'
    printf '  - %s\n' "$(cut -d ' ' -f 1,2 "$state/$name.client_key.pub")"
}

make_iso() { # OUTPUT; in the folder of the files
    set -- -quiet -output "$1" -volid cidata -joliet -rock user-data meta-data vendor-data network-config
    if command -v genisoimage >/dev/null 2>&1; then
        genisoimage "$@"
    elif command -v mkisofs >/dev/null 2>&1; then
        mkisofs "$@"
    elif command -v xorriso >/dev/null 2>&1; then
        xorriso -as mkisofs "$@"
    else
        return 127
    fi
}

main() {
    mkdir -p -- "$state"
    (umask 022 && mkdir -p -- "$(dirname -- "$seed")")
    # What an earlier run that was killed left behind holds the VM's private key.
    rm -rf -- "$state"/.seed.*
    key "$state/$name.host_key" "$name"
    key "$state/$name.client_key" "$account@$name"
    work=$(mktemp -d -- "$state/.seed.XXXXXX")
    trap 'rm -rf -- "$work"' EXIT
    trap 'exit 129' HUP
    trap 'exit 143' TERM
    base64 -d | tar -x -C "$work"
    vendor_data >"$work/vendor-data"
    status=0
    (cd "$work" && make_iso "$work/seed.iso") >&2 || status=$?
    [ "$status" != 127 ] || exit 20
    [ "$status" = 0 ] || exit "$status"
    sync -- "$work/seed.iso"
    mv -f -- "$work/seed.iso" "$seed.new"
    mv -f -- "$seed.new" "$seed"
    sum=$(sha256sum <"$seed")
    # Noted last, when nothing is left to do: a run that was cut off is done again.
    rm -rf -- "$work"
    printf '%s %s\n' "$digest" "${sum%% *}" >"$state/$name.seed.new"
    mv -f -- "$state/$name.seed.new" "$state/$name.seed"
}
