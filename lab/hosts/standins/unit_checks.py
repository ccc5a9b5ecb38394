"""Why a service would not come up with the configuration that is on the host now."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import PurePosixPath

import yaml

from lab.hosts import driver
from lab.hosts.machine import Machine


def problem(machine: Machine, unit: str) -> str | None:
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


def _fabric_manager_problem(machine: Machine) -> str | None:
    return driver.fabric_problem(machine) if machine.board.runs_the_driver else None


_CHECKS: dict[str, Callable[[Machine], str | None]] = {
    "containerd.service": _containerd_problem,
    "kubelet.service": _kubelet_problem,
    driver.FABRIC_MANAGER: _fabric_manager_problem,
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
