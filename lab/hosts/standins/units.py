"""systemd units of a simulated host: which exist, which run, and what starting them does."""

from __future__ import annotations

import hashlib
import time
import tomllib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import yaml

from lab.hosts.faults import Faults
from lab.hosts.machine import Machine
from lab.hosts.standins.fabric import UNIT as FABRIC_MANAGER
from lab.hosts.standins.fabric import Fabric

UNIT_DIRECTORY = "/etc/systemd/system"

_DESCRIPTIONS = {
    FABRIC_MANAGER: "NVIDIA fabric manager service",
    "containerd.service": "containerd container runtime",
    "kubelet.service": "kubelet: The Kubernetes Node Agent",
    "libvirtd.service": "libvirt legacy monolithic daemon",
    "ssh.service": "OpenBSD Secure Shell server",
}
_PROGRAMS = {
    FABRIC_MANAGER: "/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg",
    "containerd.service": "/usr/bin/containerd",
    "kubelet.service": "/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml",
    "libvirtd.service": "/usr/sbin/libvirtd",
    "ssh.service": "/usr/sbin/sshd -D",
}
_SUFFIXES = (".service", ".timer", ".socket", ".target", ".path", ".mount", ".slice")
_FIRST_PID = 800


def full_name(name: str) -> str:
    """`kubelet` is short for `kubelet.service`."""
    return name if name.endswith(_SUFFIXES) else f"{name}.service"


def text(machine: Machine, unit: str) -> tuple[str, str] | None:
    """Path and text of a unit file, None when the unit does not exist."""
    path = f"{UNIT_DIRECTORY}/{unit}"
    own = machine.read_text(path)
    if own is not None:
        return path, own
    if unit not in _DESCRIPTIONS:
        return None
    built_in = (
        f"[Unit]\nDescription={_DESCRIPTIONS[unit]}\n\n"
        f"[Service]\nExecStart={_PROGRAMS[unit]}\nRestart=always\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    return f"/usr/lib/systemd/system/{unit}", built_in


def drop_ins(machine: Machine, unit: str) -> list[tuple[str, str]]:
    """Path and text of the unit's drop-ins, in the order in which they apply."""
    folder = f"{UNIT_DIRECTORY}/{unit}.d"
    real = machine.path(folder)
    if not real.is_dir():
        return []
    names = sorted(entry.name for entry in real.iterdir() if entry.name.endswith(".conf"))
    return [(f"{folder}/{name}", machine.read_text(f"{folder}/{name}") or "") for name in names]


def option(unit_text: str, section: str, key: str) -> str | None:
    """The last value of a key in a section of a unit file."""
    current, value = "", None
    for line in unit_text.splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            current = stripped.strip("[]")
        elif current == section and stripped.startswith(f"{key}="):
            value = stripped.partition("=")[2].strip()
    return value


def known(machine: Machine) -> list[str]:
    """The names of all units, sorted."""
    real = machine.path(UNIT_DIRECTORY)
    own = {entry.name for entry in real.iterdir()} if real.is_dir() else set[str]()
    return sorted(set(_DESCRIPTIONS) | {name for name in own if name.endswith(_SUFFIXES)})


def state(machine: Machine, unit: str) -> dict[str, Any]:
    """What is remembered of a unit; a machine that just booted runs those it came with."""
    units = machine.state.setdefault("units", {})
    if unit not in units:
        ours = unit in _DESCRIPTIONS
        units[unit] = {
            "active": "active" if ours else "inactive",
            "enabled": ours,
            "pid": _next_pid(machine) if ours else 0,
            "since": time.time(),
            "starts": 0,
            "loaded": signature(machine, unit),
        }
    entry: dict[str, Any] = units[unit]
    return entry


def is_active(machine: Machine, unit: str) -> bool:
    """Whether a unit runs."""
    return bool(state(machine, unit)["active"] == "active")


def signature(machine: Machine, unit: str) -> str:
    """Tells whether the unit's files changed since systemd last read them."""
    found = text(machine, unit)
    parts = [*([found] if found else []), *drop_ins(machine, unit)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def needs_reload(machine: Machine, unit: str) -> bool:
    """Whether the files on disk differ from what systemd knows."""
    return bool(state(machine, unit)["loaded"] != signature(machine, unit))


def reload(machine: Machine) -> None:
    """`daemon-reload`."""
    for unit in known(machine):
        state(machine, unit)["loaded"] = signature(machine, unit)
    machine.note("unit", action="daemon-reload")


def start(machine: Machine, unit: str, faults: Faults, *, action: str) -> bool:
    """Start a unit, or start it again; False when it fails, as a real one does on a bad file."""
    entry = state(machine, unit)
    problem = _problem(machine, unit)
    entry["since"] = time.time()
    if problem is not None:
        entry["active"], entry["pid"] = "failed", 0
        machine.note("unit", action=action, unit=unit, failed=problem)
        return False
    entry["active"] = "active"
    found = text(machine, unit)
    once = found is not None and option(found[1], "Service", "Type") == "oneshot"
    if once and option(found[1] if found else "", "Service", "RemainAfterExit") not in _TRUE:
        entry["active"] = "inactive"
    entry["pid"] = 0 if once else _next_pid(machine)
    entry["starts"] += 1
    if unit == FABRIC_MANAGER:
        Fabric(machine, faults).started()
    machine.note("unit", action=action, unit=unit)
    return True


_TRUE = {"yes", "true", "1", "on"}


def stop(machine: Machine, unit: str) -> None:
    """Stop a unit."""
    entry = state(machine, unit)
    entry["active"], entry["pid"], entry["since"] = "inactive", 0, time.time()
    machine.note("unit", action="stop", unit=unit)


def _next_pid(machine: Machine) -> int:
    machine.state["last_pid"] = machine.state.get("last_pid", _FIRST_PID) + 1
    return int(machine.state["last_pid"])


def _problem(machine: Machine, unit: str) -> str | None:
    """Why a service would not come up with the configuration that is on the host now."""
    check = _CHECKS.get(unit)
    return check(machine) if check else None


def _containerd_problem(machine: Machine) -> str | None:
    return _first_problem(
        machine,
        ["/etc/containerd/config.toml", *_files(machine, "/etc/containerd/conf.d", ".toml")],
        lambda content: tomllib.loads(content) and None,
    )


def _kubelet_problem(machine: Machine) -> str | None:
    drop_in_folder = "/etc/kubernetes/kubelet.conf.d"
    return _first_problem(
        machine,
        ["/var/lib/kubelet/config.yaml", *_files(machine, drop_in_folder, ".conf")],
        lambda content: yaml.safe_load(content) and None,
    )


_CHECKS: dict[str, Callable[[Machine], str | None]] = {
    "containerd.service": _containerd_problem,
    "kubelet.service": _kubelet_problem,
}


def _files(machine: Machine, folder: str, suffix: str) -> list[str]:
    real = machine.path(folder)
    if not real.is_dir():
        return []
    return sorted(str(PurePosixPath(folder) / e.name) for e in real.iterdir() if e.suffix == suffix)


def _first_problem(machine: Machine, paths: list[str], load: Callable[[str], object]) -> str | None:
    for path in paths:
        content = machine.read_text(path)
        if content is None:
            continue
        try:
            load(content)
        except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
            return f"{path}: {error}"
    return None
