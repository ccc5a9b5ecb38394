#!/bin/sh
# Print what is known of RKE2 on this host, one "key value" per line; changes nothing.
# Usage: sh -s -- PATH...     prints "file PATH SHA256" for each of these files that is there.
set -eu
LC_ALL=C
export LC_ALL
state=/var/lib/gpu-clusters/rke2

say() {
    printf '%s %s\n' "$1" "$2"
}

rke2=""
for candidate in /usr/local/bin/rke2 /opt/rke2/bin/rke2 /usr/bin/rke2; do
    if [ -x "$candidate" ]; then
        rke2=$candidate
        break
    fi
done
if [ -n "$rke2" ]; then
    # "rke2 version v1.35.7+rke2r1 (commit)", then the version of Go.
    say version "$("$rke2" --version | sed -n 's/^rke2 version \([^ ]*\).*/\1/p')"
    if [ "$rke2" = /usr/bin/rke2 ]; then say method rpm; else say method tar; fi
fi
# One line for each unit, in this order. Kubelets of others: one host cannot be a node twice.
set_states() {
    say active "server ${1:-unknown}"
    say active "agent ${2:-unknown}"
    say firewalld "${3:-unknown}"
    [ $# -ge 3 ] || return 0
    shift 3
    for unit in k3s k3s-agent kubelet docker; do
        [ $# -gt 0 ] || break
        [ "$1" != active ] || say runs "$unit.service"
        shift
    done
}
# shellcheck disable=SC2046 # states are single words
set_states $(systemctl is-active rke2-server.service rke2-agent.service firewalld.service \
    k3s.service k3s-agent.service kubelet.service docker.service 2>/dev/null || true)
for mark in owner applied; do
    if [ -f "$state/$mark" ]; then
        say "$mark" "$(cat "$state/$mark")"
    fi
done
for path; do
    if [ -f "$path" ]; then
        sum=$(sha256sum <"$path")
        say file "$path ${sum%% *}"
    fi
done
say clock "$(date +%s)"
say architecture "$(uname -m)"
say system "$(sed -n -e 's/^ID=//p' /etc/os-release | tr -d '"')"
say release "$(sed -n -e 's/^VERSION_ID=//p' /etc/os-release | tr -d '"')"
# What matters before RKE2 comes here for the first time, and costs a moment each.
if [ ! -f "$state/owner" ]; then
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        say cgroup v2
    elif [ -d /sys/fs/cgroup ]; then
        say cgroup v1
    fi
    folder=/var/lib/rancher
    [ -d "$folder" ] || folder=/var/lib
    say free-mib "$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1024) }')"
    # A kernel with AppArmor refuses containers whose profile cannot be loaded.
    if [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null || true)" = Y ] &&
        ! command -v apparmor_parser >/dev/null 2>&1; then
        say apparmor-parser no
    fi
    # From its tenth release on the RHEL family has the modules of iptables in a package of their own.
    case $(sed -n -e 's/^PLATFORM_ID=//p' /etc/os-release | tr -d '"') in
    platform:el1[0-9]) rpm -q kernel-modules-extra >/dev/null 2>&1 || say kernel-modules-extra no ;;
    esac
    if command -v ss >/dev/null 2>&1; then
        say ports "$(ss -Hltn 2>/dev/null | awk '{ sub(/.*:/, "", $4); print $4 }' | sort -un | tr '\n' ' ')"
    fi
fi
# A template without the base takes the place of all that RKE2 writes at its next start; a container toolkit
# that was given RKE2's configuration as its own left such stubs (NVIDIA/gpu-operator#992, rancher/rke2#10293).
containerd=/var/lib/rancher/rke2/agent/etc/containerd
for template in "$containerd/config-v3.toml.tmpl" "$containerd/config.toml.tmpl"; do
    if [ -f "$template" ] && ! grep -Eq '\{\{-?[[:space:]]*template[[:space:]]+"base"' "$template"; then
        say stub "$template"
    fi
done
if [ -f "$containerd/config.toml" ]; then
    if grep -Eq "^[[:space:]]*imports[[:space:]]*=.*$containerd/config-v3\.toml\.d/\*\.toml" "$containerd/config.toml"; then
        say drop-ins yes
    else
        say drop-ins no
    fi
fi
say inotify "$(sysctl -n fs.inotify.max_user_instances 2>/dev/null || true)"

# Destination 00000000 with the flag "up" in the kernel's routing table, or ::/0 in that of IPv6.
route=no
if [ -r /proc/net/route ] && awk '$2 == "00000000" && $8 == "00000000" { found = 1 } END { exit !found }' /proc/net/route; then
    route=yes
elif [ -r /proc/net/ipv6_route ] && awk '$1 ~ /^0+$/ && $2 == "00" && $NF != "lo" { found = 1 } END { exit !found }' /proc/net/ipv6_route; then
    route=yes
fi
say default-route "$route"

if command -v getenforce >/dev/null 2>&1; then
    say selinux "$(getenforce)"
    if command -v rpm >/dev/null 2>&1 && rpm -q rke2-selinux >/dev/null 2>&1; then
        say selinux-policy yes
    fi
fi
say nm-cloud-setup "$(systemctl is-enabled nm-cloud-setup.service 2>/dev/null || true)"

# The certificate that ends first; kubelet and API server have some each.
if command -v openssl >/dev/null 2>&1; then
    first=""
    for certificate in /var/lib/rancher/rke2/agent/*.crt /var/lib/rancher/rke2/server/tls/*.crt; do
        case $certificate in
        *-ca.crt | *'*'*) continue ;; # authorities live for ten years
        esac
        ends=$(openssl x509 -noout -enddate -in "$certificate" 2>/dev/null | sed 's/^notAfter=//') || continue
        [ -n "$ends" ] || continue
        utc=$(date -u -d "$ends" +%Y-%m-%dT%H:%M:%SZ 2>/dev/null) || continue
        if [ -z "$first" ] || [ "$(printf '%s\n%s\n' "$utc" "$first" | sort | head -n 1)" = "$utc" ]; then
            first=$utc
        fi
    done
    if [ -n "$first" ]; then
        say expires "$first"
    fi
fi
