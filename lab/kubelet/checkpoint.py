"""Which devices were given to which containers, on disk, so that a restart of the kubelet loses none."""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.files import read_json, write_json


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices of one resource that one container has; `cdi` are the names that the plugin answered."""

    uid: str
    namespace: str
    pod: str
    container: str
    resource: str
    devices: tuple[str, ...]
    cdi: tuple[str, ...] = ()
    envs: tuple[tuple[str, str], ...] = ()
    """Variables that the plugin answered."""


class Checkpoint:
    """The allocations of one node, and the resources that plugins ever registered on it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        kept = _read(file)
        self._allocations = [
            Allocation(
                **{
                    **entry,
                    "devices": tuple(entry["devices"]),
                    "cdi": tuple(entry["cdi"]),
                    "envs": tuple((name, value) for name, value in entry.get("envs", ())),
                }
            )
            for entry in kept.get("allocations", [])
        ]
        self._resources: set[str] = set(kept.get("resources", []))

    @property
    def resources(self) -> frozenset[str]:
        """Resources that a plugin has registered, now or before a restart."""
        return frozenset(self._resources)

    def of_pod(self, uid: str) -> list[Allocation]:
        return [held for held in self._allocations if held.uid == uid]

    def in_use(self, resource: str) -> set[str]:
        return {d for held in self._allocations if held.resource == resource for d in held.devices}

    def register(self, resource: str) -> None:
        """Remember that a plugin serves the resource."""
        if resource not in self._resources:
            self._resources.add(resource)
            self._write()

    def add(self, allocations: Iterable[Allocation]) -> None:
        """Give devices away; on disk when this returns."""
        self._allocations += allocations
        self._write()

    def free(self, uid: str) -> bool:
        """Take back what a pod has; gives whether it had anything."""
        return self._keep([held for held in self._allocations if held.uid != uid])

    def keep_only(self, uids: Collection[str]) -> bool:
        """Take back what other pods than these have."""
        return self._keep([held for held in self._allocations if held.uid in uids])

    def _keep(self, kept: list[Allocation]) -> bool:
        if len(kept) == len(self._allocations):
            return False
        self._allocations = kept
        self._write()
        return True

    def _write(self) -> None:
        write_json(
            self._file,
            {
                "allocations": [asdict(held) for held in self._allocations],
                "resources": sorted(self._resources),
            },
        )


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(read_json(file) or {})
    except json.JSONDecodeError:
        # As a kubelet does with a checkpoint that is damaged: begin anew.
        return {}
