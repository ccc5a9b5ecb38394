#!/bin/sh
# Gets an image and verifies it. May be stopped and run again at any time: a download goes on where it ended.
# Usage: sh -s -- PATH URL|- SHA256 STATE_FOLDER SECONDS
# Exit: 10 not finished within SECONDS (prints the bytes so far), 11 another checksum (prints it), 12 no file at
#       PATH, 13 curl is missing, 14 the download failed.
set -eu
LC_ALL=C
export LC_ALL

path=$1 url=$2 sha256=$3 state=$4 seconds=$5
part=$path.part

verify() { # FILE: prints its checksum, fails if it is another
    sum=$(sha256sum <"$1")
    sum=${sum%% *}
    [ "$sum" = "$sha256" ]
}

remember() {
    (umask 077 && mkdir -p -- "$state/images")
    stat -c '%s %Y %i' -- "$path" >"$state/images/$sha256.new"
    mv -f -- "$state/images/$sha256.new" "$state/images/$sha256"
}

if [ -f "$path" ]; then
    if verify "$path"; then
        remember
        exit 0
    fi
    if [ "$url" = - ]; then
        echo "$sum"
        exit 11
    fi
    rm -f -- "$path" # ours, and damaged: loaded again
fi
[ "$url" != - ] || exit 12
command -v curl >/dev/null 2>&1 || exit 13

(umask 022 && mkdir -p -- "$(dirname -- "$path")")
status=0
curl --fail --silent --show-error --location --continue-at - --max-time "$seconds" \
    --connect-timeout 20 --output "$part" -- "$url" >&2 || status=$?
case $status in
    0) ;;
    28)
        stat -c %s -- "$part" 2>/dev/null || echo 0
        exit 10
        ;;
    # 33: the server cannot go on in the middle; 416 (22) after a part that is whole already.
    *)
        if [ -f "$part" ] && verify "$part"; then
            :
        else
            [ "$status" != 33 ] || rm -f -- "$part"
            exit 14
        fi
        ;;
esac
if ! verify "$part"; then
    rm -f -- "$part"
    echo "$sum"
    exit 11
fi
chmod 0644 -- "$part"
sync -- "$part"
mv -f -- "$part" "$path"
remember
