#!/bin/sh
# The account's rootless Docker. Runs as the account, with XDG_RUNTIME_DIR and DOCKER_HOST of its own.
# Usage: sh -s -- setup                its unit by Docker's own tool, enabled
#        sh -s -- restart              a start anew, until it answers
#        sh -s -- gate IMAGE           what a container with all GPUs sees: prints its "nvidia-smi -L"
#        sh -s -- remove keep|remove   stopped and taken out; its data stays or goes
set -eu
LC_ALL=C
export LC_ALL
unit=docker.service

failed() {
    journalctl --user --no-pager -o cat -n 12 -u "$unit" 2>/dev/null | tail -n 6 >&2 || true
    exit 1
}

answers() {
    tries=0
    until docker version --format '{{.Server.Version}}' >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -ge 150 ]; then
            echo "the daemon does not answer at $DOCKER_HOST" >&2
            failed
        fi
        sleep 0.2
    done
}

case $1 in
setup)
    # A unit that another version of Docker left would be kept by the tool.
    rm -f "$HOME/.config/systemd/user/$unit"
    # It gives the daemon three seconds to answer, which a busy host does not keep; a restart waits longer.
    dockerd-rootless-setuptool.sh install </dev/null >/dev/null || [ -f "$HOME/.config/systemd/user/$unit" ] || failed
    systemctl --user daemon-reload
    systemctl --user enable --quiet "$unit"
    ;;
restart)
    systemctl --user daemon-reload
    systemctl --user reset-failed "$unit" 2>/dev/null || true
    systemctl --user restart "$unit" || failed
    answers
    ;;
gate)
    docker run --rm --network none --device nvidia.com/gpu=all --entrypoint nvidia-smi "$2" -L </dev/null
    ;;
remove)
    if command -v dockerd-rootless-setuptool.sh >/dev/null 2>&1; then
        dockerd-rootless-setuptool.sh uninstall </dev/null >/dev/null 2>&1 || true
    fi
    rm -f "$HOME/.config/systemd/user/$unit.d/gpu-clusters.conf"
    if [ "$2" = remove ] && command -v rootlesskit >/dev/null 2>&1; then
        # Files of other ids within the namespace: only there can they be removed.
        rootlesskit rm -rf "$HOME/.local/share/docker"
    fi
    systemctl --user daemon-reload 2>/dev/null || true
    ;;
*) exit 64 ;;
esac
