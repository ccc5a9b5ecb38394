"""RKE2's configuration as it lies on a host: `config.yaml`, then `config.yaml.d`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from lab.hosts.machine import resolve

FILE = "/etc/rancher/rke2/config.yaml"
FOLDER = f"{FILE}.d"


def read(root: Path) -> dict[str, Any]:
    """What counts on the host with this root: later files win, `key+` appends."""
    merged: dict[str, Any] = {}
    folder = resolve(root, FOLDER)
    names = sorted(file.name for file in folder.glob("*.yaml")) if folder.is_dir() else []
    for path in (FILE, *(f"{FOLDER}/{name}" for name in names)):
        file = resolve(root, path)
        body = yaml.safe_load(file.read_text()) if file.is_file() else None
        for key, value in (body or {}).items():
            if key.endswith("+"):
                merged[key[:-1]] = [*merged.get(key[:-1], []), *value]
            else:
                merged[key] = value
    return merged
