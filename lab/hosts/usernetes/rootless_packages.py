"""Packages of Docker and of NVIDIA's container toolkit on a simulated Ubuntu, and what they bring along.

Sources: Docker's repository for Ubuntu (names, epochs; `docker-ce` starts a daemon as root when it is
installed), NVIDIA's packaging of the toolkit (`nvidia-cdi-refresh.service` and `.path` since 1.18,
/etc/nvidia-container-runtime/config.toml).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lab.hosts.machine import Machine
from lab.hosts.nvidia.nvidia_ctk import CONFIGURATION, DEFAULT
from lab.hosts.systemd import units

_DOCKER = ("29.8.1", "29.7.2", "29.5.0", "28.5.2")
_TOOLKIT = ("1.20.1-1", "1.20.0-1", "1.19.0-1", "1.18.2-1")
_OF_DOCKER = ("docker-ce", "docker-ce-cli", "docker-ce-rootless-extras")
_OF_TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)

CATALOGUE: Mapping[str, tuple[str, ...]] = {
    **{name: tuple(f"5:{v}-1~ubuntu.24.04~noble" for v in _DOCKER) for name in _OF_DOCKER},
    "docker-buildx-plugin": ("0.30.1-1~ubuntu.24.04~noble",),
    "docker-compose-plugin": ("2.40.3-1~ubuntu.24.04~noble",),
    **dict.fromkeys(_OF_TOOLKIT, _TOOLKIT),
    "apparmor": ("4.0.1really4.0.1-0ubuntu0.24.04.4",),
    "ca-certificates": ("20240203",),
    "curl": ("8.5.0-2ubuntu10.6",),
    "dbus-user-session": ("1.14.10-4ubuntu4.1",),
    "git": ("1:2.43.0-1ubuntu7.3",),
    "gpg": ("2.4.4-2ubuntu17.3",),
    "iproute2": ("6.1.0-1ubuntu6",),
    "iptables": ("1.8.10-3ubuntu2",),
    "jq": ("1.7.1-3ubuntu0.24.04.1",),
    "make": ("4.3-4.1build2",),
    "slirp4netns": ("1.2.1-1build2",),
    "uidmap": ("1:4.13+dfsg1-4ubuntu3.2",),
}
"""Packages with their versions, newest first."""

_SITES = {
    "docker-": "download.docker.com",
    "nvidia-container": "nvidia.github.io/libnvidia-container",
}
"""What is in the names of packages that do not come from Ubuntu, and where they come from."""

REFRESH, REFRESH_PATH = "nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path"
_SOCKET = "/run/docker.sock"
# The real one names /usr/bin/nvidia-ctk; here programs of the lab are found by their name alone.
_REFRESH_TEXT = """[Unit]
Description=Refresh NVIDIA CDI specification file
ConditionPathExists=|/usr/bin/nvidia-smi
ConditionPathExists=|/usr/sbin/nvidia-smi

[Service]
Type=oneshot
Environment=NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/var/run/cdi/nvidia.yaml
EnvironmentFile=-/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env
ExecStart=nvidia-ctk cdi generate

[Install]
WantedBy=multi-user.target
"""
_PATH_TEXT = """[Unit]
Description=Trigger CDI refresh on NVIDIA driver install / uninstall events

[Path]
PathChanged=/lib/modules/%v/modules.dep
Unit=nvidia-cdi-refresh.service

[Install]
WantedBy=multi-user.target
"""


def has_source(machine: Machine, name: str) -> bool:
    """Whether a repository of the host has this package; Ubuntu's own are always there."""
    site = next((where for sign, where in _SITES.items() if sign in name), None)
    folder = machine.path("/etc/apt/sources.list.d")
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return site is None or any(site in file.read_text() for file in files)


def installed(machine: Machine, names: Iterable[str]) -> None:
    """What the scripts of these packages do after they were unpacked."""
    there = set(names)
    if "docker-ce" in there:
        for unit in ("docker.service", "docker.socket"):
            if machine.state.get("units", {}).get(unit) is None:
                units.state(machine, unit)
        if units.is_active(machine, "docker.socket"):
            machine.path(_SOCKET).touch()
    if "nvidia-container-toolkit-base" in there:
        for unit, text in ((REFRESH, _REFRESH_TEXT), (REFRESH_PATH, _PATH_TEXT)):
            machine.path(f"{units.UNIT_DIRECTORY}/{unit}").write_text(text)
            units.state(machine, unit).update(enabled=True, loaded=units.signature(machine, unit))
        config = machine.path(CONFIGURATION)
        if not config.exists():
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text(DEFAULT)


def removed(machine: Machine, names: Iterable[str]) -> None:
    there = set(names)
    known = machine.state.get("units", {})
    if "docker-ce" in there:
        for unit in ("docker.service", "docker.socket"):
            known.pop(unit, None)
        machine.path(_SOCKET).unlink(missing_ok=True)
    if "nvidia-container-toolkit-base" in there:
        for unit in (REFRESH, REFRESH_PATH):
            known.pop(unit, None)
            machine.path(f"{units.UNIT_DIRECTORY}/{unit}").unlink(missing_ok=True)
