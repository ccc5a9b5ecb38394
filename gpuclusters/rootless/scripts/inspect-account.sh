#!/bin/sh
# Print what an account knows of its rootless Docker, one "key value" per line; changes nothing. Runs as the account,
# with XDG_RUNTIME_DIR and DOCKER_HOST of its own: neither a shell of sudo's nor one of SSH's has them.
# Usage: sh -s -- FILE...      prints "file PATH SHA256" for each of these files that is there.
set -eu
LC_ALL=C
export LC_ALL

say() {
    printf '%s %s\n' "$1" "$2"
}

# Says "offline", or nothing, without a bus.
case $(systemctl --user is-system-running 2>/dev/null || true) in
running | degraded | starting | initializing | maintenance | stopping) say bus yes ;;
esac
rootlesskit=$(command -v rootlesskit || true)
if [ -n "$rootlesskit" ]; then
    say rootlesskit "$rootlesskit"
    status=0
    answer=$(rootlesskit true 2>&1) || status=$?
    case $status in
    0 | 127) ;;
    *) printf '%s\n' "$answer" | sed -e '/^$/d' -e 's/^/namespaces /' | tail -n 2 ;;
    esac
fi
[ ! -e "$XDG_RUNTIME_DIR/containerd-rootless" ] || say nerdctl yes
if [ -f "$HOME/.config/systemd/user/docker.service" ]; then
    say user-unit yes
    say user-enabled "$(systemctl --user is-enabled docker.service 2>/dev/null || true)"
fi
if [ -f "$HOME/.config/docker/daemon.json" ]; then
    say daemon-json "$(base64 <"$HOME/.config/docker/daemon.json" | tr -d '\n')"
fi
if [ -e "$XDG_RUNTIME_DIR/docker.sock" ]; then
    say docker-info "$(docker info --format '{{json .}}' 2>/dev/null | head -n 1 || true)"
fi
for path; do
    if [ -f "$path" ]; then
        sum=$(sha256sum <"$path")
        say file "$path ${sum%% *}"
    fi
done
