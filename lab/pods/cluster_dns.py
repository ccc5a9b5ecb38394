"""The cluster's DNS, as far as pods that run as processes need it: names of headless services.

Kept as `<kubelets>/dns/<namespace>/<hostname>.<subdomain>`; the processes of pods read it (`in_pod`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_FOLDER = "dns"
_SUFFIX = ".svc.cluster.local"


@dataclass(frozen=True, slots=True)
class Name:
    namespace: str
    host: str
    """`training-0.training`."""

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> Name | None:
        """Of a pod that has one: a hostname and the name of a service."""
        spec = pod["spec"]
        if not spec.get("hostname") or not spec.get("subdomain"):
            return None
        return cls(pod["metadata"]["namespace"], f"{spec['hostname']}.{spec['subdomain']}")

    @classmethod
    def asked(cls, text: str, namespace: str) -> Name | None:
        """Of what a program in a namespace looks up; None if that is no name of a pod."""
        parts = text.removesuffix(".").removesuffix(_SUFFIX).removesuffix(".svc").split(".")
        if len(parts) == 2:
            return cls(namespace, ".".join(parts))
        return cls(parts[2], ".".join(parts[:2])) if len(parts) == 3 else None


@dataclass(frozen=True, slots=True)
class Record:
    address: str
    node: str


def publish(kubelets: Path, name: Name, address: str, node: str) -> None:
    file = _file(kubelets, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    new.write_text(json.dumps(asdict(Record(address, node))), encoding="utf-8")
    # Whoever looks it up finds all of it or nothing.
    new.replace(file)


def withdraw(kubelets: Path, name: Name) -> None:
    _file(kubelets, name).unlink(missing_ok=True)


def find(kubelets: Path, name: Name) -> Record | None:
    """Where a pod is; None if there is none of this name."""
    try:
        known = json.loads(_file(kubelets, name).read_bytes())
    except FileNotFoundError:
        return None
    return Record(known["address"], known["node"])


def _file(kubelets: Path, name: Name) -> Path:
    return kubelets / _FOLDER / name.namespace / name.host
