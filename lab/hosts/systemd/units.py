"""systemd units of a simulated host: which exist, which run, and what starting them does."""

import hashlib
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from lab.hosts.faults import Faults
from lab.hosts.machine import Machine
from lab.hosts.nvidia import driver
from lab.hosts.service_vm.fabric import UNIT as FABRIC_MANAGER
from lab.hosts.service_vm.fabric import Fabric

_BUILT_IN: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("units.yaml").read_text())
"""Units that packages bring along."""
NONE: Mapping[str, Any] = {"active": "inactive", "enabled": False, "pid": 0, "result": "success"}
"""What is told of a unit that does not exist."""


def start_problem(machine: Machine, unit: str) -> str | None:
    """Why a service would not come up with the configuration that is on the host now."""
    if unit == FABRIC_MANAGER:
        return driver.fabric_problem(machine) if machine.board.runs_the_driver else None
    for pattern, load in _CONFIGURATION.get(unit, {}).items():
        path = PurePosixPath(pattern)
        folder = machine.path(str(path.parent))
        for file in sorted(folder.glob(path.name)) if folder.is_dir() else []:
            try:
                load(file.read_text())
            except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
                return f"{path.parent}/{file.name}: {error}"
    return None


_CONFIGURATION: Mapping[str, Mapping[str, Callable[[str], object]]] = {
    "containerd.service": {
        "/etc/containerd/config.toml": tomllib.loads,
        "/etc/containerd/conf.d/*.toml": tomllib.loads,
    },
    "kubelet.service": {
        "/var/lib/kubelet/config.yaml": yaml.safe_load,
        "/etc/kubernetes/kubelet.conf.d/*.conf": yaml.safe_load,
    },
}
"""What a service reads when it starts."""
UNIT_DIRECTORY = "/etc/systemd/system"
UNIT_DIRECTORIES = (UNIT_DIRECTORY, "/run/systemd/system", "/usr/local/lib/systemd/system")
"""Where a host's own unit files are, the first found counts: systemd.unit(5)."""

_SUFFIXES = (".service", ".timer", ".socket", ".target", ".path", ".mount", ".slice")
_FIRST_PID = 800


def full_name(name: str) -> str:
    """`kubelet` is short for `kubelet.service`."""
    return name if name.endswith(_SUFFIXES) else f"{name}.service"


def text(machine: Machine, unit: str) -> tuple[str, str] | None:
    """Path and text of a unit file, None when the unit does not exist."""
    for folder in UNIT_DIRECTORIES:
        own = machine.read_text(f"{folder}/{unit}")
        if own is not None:
            return f"{folder}/{unit}", own
    if not _is_installed(machine, unit):
        return None
    said = _BUILT_IN[unit]
    built_in = (
        f"[Unit]\nDescription={said['description']}\n\n"
        f"[Service]\nExecStart={said['program']}\nRestart=always\n\n"
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


def known(machine: Machine) -> list[str]:
    own: set[str] = set()
    for folder in UNIT_DIRECTORIES:
        real = machine.path(folder)
        own |= {entry.name for entry in real.iterdir()} if real.is_dir() else set()
    built_in = {unit for unit in _BUILT_IN if _is_installed(machine, unit)}
    return sorted(built_in | {name for name in own if name.endswith(_SUFFIXES)})


def _is_installed(machine: Machine, unit: str) -> bool:
    said = _BUILT_IN.get(unit)
    return said is not None and (not said["packages"] or machine.has_package(*said["packages"]))


def has_program(machine: Machine, unit: str) -> bool:
    """Whether the unit has a file of its own, so that what it says is really run."""
    found = text(machine, unit)
    return found is not None and found[0].startswith(UNIT_DIRECTORIES)


def values(machine: Machine, unit: str, section: str, key: str) -> list[str]:
    """All values of a key, drop-ins included; an empty one takes those before it away."""
    own = text(machine, unit)
    parts = [*([own] if own else []), *drop_ins(machine, unit)]
    found: list[str] = []
    current = ""
    for line in "\n[]\n".join(content for _, content in parts).splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            current = stripped.strip("[]")
        elif current == section and stripped.startswith(f"{key}="):
            said = stripped.partition("=")[2].strip()
            found = [*found, said] if said else []
    return found


def value(machine: Machine, unit: str, section: str, key: str) -> str | None:
    found = values(machine, unit, section, key)
    return found[-1] if found else None


def words(machine: Machine, unit: str, section: str, key: str) -> list[str]:
    return [word for said in values(machine, unit, section, key) for word in said.split()]


def commands(machine: Machine, unit: str, key: str) -> list[str]:
    """The command lines of a service, in order."""
    return values(machine, unit, "Service", key)


def kind(machine: Machine, unit: str) -> str:
    """`Type=` of a service."""
    return value(machine, unit, "Service", "Type") or "simple"


def boot_order(machine: Machine) -> list[str]:
    """Enabled units with a file of their own or brought along, what comes `Before=` others first."""
    enabled = [unit for unit in known(machine) if state(machine, unit)["enabled"]]
    later: dict[str, set[str]] = {unit: set() for unit in enabled}
    for unit in enabled:
        later[unit] |= {n for n in words(machine, unit, "Unit", "After") if n in later}
        for name in words(machine, unit, "Unit", "Before"):
            if name in later:
                later[name].add(unit)
    ordered: list[str] = []
    while len(ordered) < len(enabled):
        rest = [unit for unit in enabled if unit not in ordered]
        free = [unit for unit in rest if not later[unit] - set(ordered)]
        ordered.append((free or rest)[0])  # a circle is cut somewhere, as systemd does
    return ordered


def log_path(machine: Machine, unit: str) -> Path:
    """Where the output of a unit's processes goes."""
    folder = machine.path("/var/log/units")
    folder.mkdir(exist_ok=True)
    return folder / f"{unit}.log"


def log(machine: Machine, unit: str, line: str) -> None:
    with log_path(machine, unit).open("a") as file:
        file.write(f"systemd[1]: {unit}: {line}\n")


def state(machine: Machine, unit: str) -> dict[str, Any]:
    """What is remembered of a unit; a machine that just booted runs those it came with."""
    units = machine.state.setdefault("units", {})
    if unit not in units:
        # The package of the fabric manager leaves it to its owner to enable it.
        by_hand = unit == FABRIC_MANAGER and machine.board.runs_the_driver
        ours = unit in _BUILT_IN and not by_hand
        units[unit] = {
            "active": "active" if ours else "inactive",
            "enabled": ours,
            "pid": _next_pid(machine) if ours else 0,
            "since": time.time(),
            "result": "success",
            "loaded": signature(machine, unit),
        }
    entry: dict[str, Any] = units[unit]
    return entry


def is_active(machine: Machine, unit: str) -> bool:
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
    problem = start_problem(machine, unit)
    if problem is not None:
        _become(machine, unit, "failed")
        log(machine, unit, problem)
        machine.note("unit", action=action, unit=unit, failed=problem)
        return False
    started(machine, unit, action)
    if unit == FABRIC_MANAGER and machine.board.passes_gpus_on:
        Fabric(machine, faults).started()
    return True


def _become(machine: Machine, unit: str, active: str, *, pid: int = 0) -> dict[str, Any]:
    entry = state(machine, unit)
    entry |= {"active": active, "pid": pid, "since": time.time()}
    return entry


def started(machine: Machine, unit: str, action: str | None) -> None:
    """A unit is up; a `oneshot` without RemainAfterExit has ended already."""
    once = kind(machine, unit) == "oneshot"
    stays = value(machine, unit, "Service", "RemainAfterExit") in _TRUE
    active = "inactive" if once and not stays else "active"
    entry = _become(machine, unit, active, pid=0 if once else _next_pid(machine))
    entry["result"] = "success"
    if action is not None:
        log(machine, unit, "Finished." if once else "Started.")
        machine.note("unit", action=action, unit=unit)


def activating(machine: Machine, unit: str) -> None:
    """A unit was started and has not said yet that it is up."""
    entry = state(machine, unit)
    entry |= {"active": "activating", "since": time.time()}


def failed(machine: Machine, unit: str, why: str, action: str) -> None:
    """A unit did not come up, or ended with an error."""
    _become(machine, unit, "failed")["result"] = "exit-code"
    log(machine, unit, f"Failed with result 'exit-code' ({why}).")
    machine.note("unit", action=action, unit=unit, failed=why)


def ended(machine: Machine, unit: str) -> None:
    """A service ended by itself, without an error."""
    _become(machine, unit, "inactive")
    log(machine, unit, "Deactivated successfully.")


def rebooted(machine: Machine) -> None:
    """Nothing runs any more; what is enabled stays so, and all files are read anew."""
    for unit, entry in machine.state.get("units", {}).items():
        entry["active"], entry["pid"], entry["loaded"] = "inactive", 0, signature(machine, unit)
    machine.path("/var/log/units").mkdir(exist_ok=True)
    for file in machine.path("/var/log/units").iterdir():
        file.unlink()


_TRUE = {"yes", "true", "1", "on"}


def stop(machine: Machine, unit: str) -> None:
    _become(machine, unit, "inactive")
    machine.note("unit", action="stop", unit=unit)


def _next_pid(machine: Machine) -> int:
    machine.state["last_pid"] = machine.state.get("last_pid", _FIRST_PID) + 1
    return int(machine.state["last_pid"])
