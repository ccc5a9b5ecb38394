"""CDI specifications of a simulated host: made by `nvidia-ctk cdi generate`, read by container engines.

Sources: the Container Device Interface (kind, device names, one file per vendor), NVIDIA's container toolkit
(`nvidia-ctk cdi generate`: strategies index, uuid and type-index, and a device `all`).
"""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from lab.files import write_atomic
from lab.hosts.machine import Machine

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
"""Where a specification is looked for; the second wins where both name a device."""
KIND = "nvidia.com/gpu"
ALL = "all"

Spec = dict[str, Any]


def specification(uuids: Sequence[str], strategies: Iterable[str]) -> Spec:
    """What `nvidia-ctk cdi generate` writes for these GPUs."""
    devices: list[Spec] = []
    names = list(strategies)
    for index, uuid in enumerate(uuids):
        known = {"index": str(index), "uuid": uuid, "type-index": f"gpu{index}"}
        edits = {"deviceNodes": [{"path": f"/dev/nvidia{index}"}]}
        devices += [{"name": known[name], "containerEdits": edits} for name in names]
    every = [{"path": f"/dev/nvidia{index}"} for index in range(len(uuids))]
    devices.append({"name": ALL, "containerEdits": {"deviceNodes": every}})
    return {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": devices,
        "containerEdits": {
            "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]
        },
    }


def write(machine: Machine, path: str, spec: Spec) -> None:
    file = machine.path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, yaml.safe_dump(spec, sort_keys=False).encode())


def devices(machine: Machine, directories: Sequence[str]) -> tuple[list[str], list[str]]:
    """Qualified names of all devices in these directories, sorted, and what could not be read."""
    found: set[str] = set()
    problems: list[str] = []
    for directory in directories:
        for path in _files(machine.path(directory)):
            try:
                found |= _names(path.read_text(), path.suffix)
            except (ValueError, yaml.YAMLError, KeyError, TypeError) as error:
                problems.append(f"{directory}/{path.name}: {error}".replace('"', "'"))
    return sorted(found), problems


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [p for p in sorted(folder.iterdir()) if p.suffix in {".json", ".yaml"} and p.is_file()]


@lru_cache
def _names(text: str, suffix: str) -> frozenset[str]:
    """The devices of a specification; an engine looks at all of them whenever it is asked anything."""
    spec: Spec = json.loads(text) if suffix == ".json" else yaml.safe_load(text)
    return frozenset(f"{spec['kind']}={device['name']}" for device in spec["devices"])
