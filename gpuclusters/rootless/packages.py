"""Which packages a host with rootless Docker and GPUs has, and which are held back. Pure.

Sources: Docker's documentation for Ubuntu (names, the epoch 5), NVIDIA's container toolkit installation guide
(four packages of one version), Usernetes' `Makefile.d/check-preflight.sh` (make, jq, iproute2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuclusters.rootless.model import LiveRootless, RootlessHostInputs

TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_DOCKER = ("docker-ce", "docker-ce-cli", "docker-ce-rootless-extras")
_PLUGINS = ("containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
_OTHERS = (
    *("uidmap", "slirp4netns", "dbus-user-session", "iptables", "iproute2"),
    *("jq", "make", "git", "curl", "gpg", "ca-certificates"),
)
_KERNEL = re.compile(
    r"linux-(image-|headers-)?(generic|gcp|aws|azure|virtual)(-[a-z0-9.-]+)?|linux-(image|headers)-[0-9].*"
)


def wanted(inputs: RootlessHostInputs) -> Mapping[str, str]:
    """Version by name; one that ends in `*` is a beginning, an empty one is any."""
    return {
        **dict.fromkeys(_DOCKER, f"5:{inputs.docker}-*"),
        **dict.fromkeys(_PLUGINS, ""),
        **dict.fromkeys(_OTHERS, ""),
        **dict.fromkeys(TOOLKIT, f"{inputs.container_toolkit}-*"),
    }


def missing(inputs: RootlessHostInputs, live: LiveRootless) -> dict[str, str]:
    """Those that are not there in their version."""
    return {
        name: version
        for name, version in wanted(inputs).items()
        if not _fits(live.package.get(name), version)
    }


def _fits(has: str | None, version: str) -> bool:
    if has is None:
        return False
    return has.startswith(version[:-1]) if version.endswith("*") else not version or has == version


def to_hold(live: LiveRootless) -> list[str]:
    """Those that must not be upgraded by themselves: daemon, toolkit, and the kernel of the driver.

    The kernel's names differ by cloud; all that are installed count, as only these can be upgraded.
    """
    pinned = [*_DOCKER, "containerd.io", *TOOLKIT]
    kernels = [
        name
        for name in live.package
        if _KERNEL.fullmatch(name) and not (_numbered(name) and live.kernel not in name)
    ]
    return sorted({*(name for name in pinned if name in live.package), *kernels})


def _numbered(name: str) -> bool:
    return re.match(r"linux-(image|headers)-[0-9]", name) is not None


def not_held(live: LiveRootless) -> list[str]:
    """Those of them that are not held."""
    return [name for name in to_hold(live) if name not in live.held]


def install_command(missing_ones: Mapping[str, str]) -> str:
    """What an administrator runs to install them."""
    words = [f"{name}={version}" if version else name for name, version in missing_ones.items()]
    return f"apt-get install -y --allow-downgrades {' '.join(repr(w) if '*' in w else w for w in words)}"
