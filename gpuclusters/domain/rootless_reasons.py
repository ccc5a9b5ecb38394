"""Why a step on a host with rootless Docker failed: what programs say, in our words. Pure.

Wording after moby (`contrib/dockerd-rootless.sh`, its CDI driver), rootlesskit, NVIDIA's container toolkit
and its guide, apt, and issues: moby 52641 and 52171, nvidia-container-toolkit 434, libnvidia-container 154.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_TABLE: Sequence[tuple[str, str, str]] = (
    (
        r"BPF_CGROUP_DEVICE",
        "NVIDIA's container runtime works in its legacy mode, which a rootless daemon cannot do",
        "run again: CDI mode is set; never no-cgroups, which fails in the containers of a node",
    ),
    (
        r"unresolvable CDI devices|could not select device driver",
        "the daemon does not know the GPUs' CDI devices",
        "look at `nvidia-ctk cdi list` and, as the account, at `docker info` (CDI spec directories), then "
        "run again: the specification is written and the daemon started anew",
    ),
    (
        r"Failed to initialize NVML: Unknown Error",
        "a container has lost its GPUs: systemd reloaded and took the devices out of its cgroup",
        "start the container again; it stays away where GPUs come in by CDI, so look for --gpus or "
        "`runtime: nvidia`, and for a default-runtime in daemon.json",
    ),
    (
        r"conflicts with containerd-rootless",
        "rootless containerd of nerdctl runs under the same account",
        "run `containerd-rootless-setuptool.sh uninstall` as the account and remove "
        "$XDG_RUNTIME_DIR/containerd-rootless",
    ),
    (
        r"No subuid ranges|failed to compute uid/gid map|newuidmap",
        "the account's subordinate ids are not found, or newuidmap is not installed",
        "look at `getsubids ACCOUNT` there; an account of OS Login or a directory has none",
    ),
    (
        r"slirp4netns.*not found|slirp4netns.*needs to be installed|setup network",
        "the daemon's network does not come up: slirp4netns is missing or does not start",
        "look at `slirp4netns --version` there as the account; without it containers do not reach "
        "169.254.169.254 either",
    ),
    (
        r"fork/exec /proc/self/exe",
        "AppArmor or the kernel forbids user namespaces",
        "load rootlesskit's profile: `sudo apparmor_parser -r /etc/apparmor.d/rootlesskit`",
    ),
    (
        r"does not exist in /etc/passwd",
        "the account comes from OS Login or a directory, so that it gets no subordinate ids",
        "write account: a local one, like ubuntu; on Google Cloud set enable-oslogin=FALSE for the machine",
    ),
    (
        r"XDG_RUNTIME_DIR|No medium found|systemd not detected",
        "systemd of the account cannot be reached: no bus",
        "look at `systemctl status user@UID.service` there; su and sudo give a session no bus",
    ),
    (
        r"rootful Docker",
        "Docker runs as root there and the account may use it",
        "take the account out of the group docker, and run again",
    ),
    (
        r"Could not enable linger",
        "lingering is not allowed there",
        "look in polkit's rules and in logind.conf what forbids it",
    ),
    (
        r"failed to resolve reference|i/o timeout|pull access denied|TLS handshake|no such host",
        "an image cannot be pulled",
        "check the way to the registry; the account's ~/.config/docker/daemon.json may name registry-mirrors",
    ),
    (
        r"Held packages were changed",
        "a package is held by somebody else",
        "look at `apt-mark showhold` and take the hold off",
    ),
    (
        r"Unable to locate package|Version '.*' (for '.*' )?was not found",
        "no repository of the host has this package in this version",
        "look at `apt-cache policy` there; in a closed network the mirror has to have it",
    ),
    (
        r"cannot be fetched from|has the fingerprint",
        "a repository of packages cannot be set up",
        "check the way there (proxy in /etc/apt and the environment), or set up a mirror by hand: then "
        "none of ours is needed",
    ),
    (
        r"linux-modules-extra",
        "the kernel lacks modules that a node needs",
        "install the package that is named, then run again",
    ),
    (
        r"has containers",
        "Docker runs as root there and is in use",
        "use another host, or remove its containers first",
    ),
    (
        r"Could not get lock",
        "another program installs packages",
        "wait for it (`unattended-upgrades` at boot), then run again",
    ),
)


def explain(said: str) -> tuple[str, str] | None:
    """Cause and remedy for what a step printed; None for words that are not known."""
    for pattern, cause, remedy in _TABLE:
        if re.search(pattern, said):
            return cause, remedy
    return None
