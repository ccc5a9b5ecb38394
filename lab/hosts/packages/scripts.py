"""What packages of Docker and of NVIDIA's container toolkit bring along, and do when they come and go.

Sources: Docker's repository for Ubuntu (`docker-ce` starts a daemon as root when it is installed), NVIDIA's
packaging of the toolkit (`nvidia-cdi-refresh.service` and `.path` since 1.18,
/etc/nvidia-container-runtime/config.toml).
"""

from collections.abc import Iterable

from lab.hosts.machine import FILES, Machine
from lab.hosts.systemd import units

_DOCKER = ("docker.service", "docker.socket")
_REFRESH = ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path")
_TOOLKIT = FILES / "nvidia-container-toolkit"
TOOLKIT_CONFIGURATION = "/etc/nvidia-container-runtime/config.toml"
_SOCKET = "/run/docker.sock"


def toolkit_default() -> str:
    return (_TOOLKIT / "config.toml").read_text()


def installed(machine: Machine, names: Iterable[str]) -> None:
    """What the scripts of these packages do after they were unpacked."""
    if "docker-ce" in names:
        for unit in _DOCKER:
            units.state(machine, unit)
        if units.is_active(machine, "docker.socket"):
            machine.path(_SOCKET).touch()
    if "nvidia-container-toolkit-base" in names:
        for unit in _REFRESH:
            machine.write(f"{units.UNIT_DIRECTORY}/{unit}", (_TOOLKIT / unit).read_text())
            units.state(machine, unit).update(enabled=True, loaded=units.signature(machine, unit))
        if machine.read_text(TOOLKIT_CONFIGURATION) is None:
            machine.write(TOOLKIT_CONFIGURATION, toolkit_default())


def removed(machine: Machine, names: Iterable[str]) -> None:
    known = machine.state.get("units", {})
    if "docker-ce" in names:
        for unit in _DOCKER:
            known.pop(unit, None)
        machine.path(_SOCKET).unlink(missing_ok=True)
    if "nvidia-container-toolkit-base" in names:
        for unit in _REFRESH:
            known.pop(unit, None)
            machine.path(f"{units.UNIT_DIRECTORY}/{unit}").unlink(missing_ok=True)
