"""A release of RKE2 for simulated hosts: archives of the real names and layout, with stand-ins in them.

The layout is that of RKE2's own `rke2.linux-amd64.tar.gz` (bundle/ of its sources): `bin/rke2`,
`bin/rke2-killall.sh`, `bin/rke2-uninstall.sh`, `lib/systemd/system/*`, `share/rke2/*`. Made anew, byte for
byte the same every time, so that its digest can be pinned like a real one's.
"""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab.hosts import archives
from lab.hosts.machine import FILES, resolve

ARCHIVE = "rke2.linux-amd64.tar.gz"
CHECKSUMS = "sha256sum-amd64.txt"
PROGRAM = "rke2-stand-in"
"""Under which name the stand-in itself is on every host, before anything is installed."""
_IMPORTS_FROM = {32: (13, 2), 33: (10, 1), 34: (6, 1), 35: (3, 1)}
"""First patch and revision by minor that are pinned to K3s with its change 13680 (go.mod of RKE2's tags)."""
_IMPORTS_ALWAYS = 36
IMAGES = ("rke2-images-core.linux-amd64.tar.zst", "rke2-images-cilium.linux-amd64.tar.zst")


@cache
def files(version: str) -> dict[str, bytes]:
    found = {ARCHIVE: _archive(version)}
    found |= {name: f"images of {version}: {name}\n".encode() for name in IMAGES}
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in found.items()]
    return {**found, CHECKSUMS: "".join(lines).encode()}


def imports_drop_ins(version: str) -> bool:
    """Whether the configuration that this release writes for containerd imports `config-v3.toml.d/*.toml`."""
    minor, patch, revision = map(
        int, re.findall("[0-9]+", version.partition(".")[2].replace("rke2", ""))
    )
    first = _IMPORTS_FROM.get(minor)
    return minor >= _IMPORTS_ALWAYS or (first is not None and (patch, revision) >= first)


def checksum(version: str) -> str:
    """sha256 of the release's list of digests: what a configuration pins."""
    return hashlib.sha256(files(version)[CHECKSUMS]).hexdigest()


def _archive(version: str) -> bytes:
    unit = (FILES / "rke2/rke2.service").read_text()
    contents = {
        "bin/rke2": (f'#!/bin/sh\nexec {PROGRAM} {version} "$@"\n', 0o755),
        **{
            f"bin/{name}": ((FILES / "rke2" / name).read_text(), 0o755)
            for name in ("rke2-killall.sh", "rke2-uninstall.sh")
        },
        **{
            f"lib/systemd/system/rke2-{role}.service": (unit.format(role=role, other=other), 0o644)
            for role, other in (("server", "agent"), ("agent", "server"))
        },
        "share/rke2/rke2-cis-sysctl.conf": (
            (FILES / "rke2/rke2-cis-sysctl.conf").read_text(),
            0o644,
        ),
    }
    return archives.packed(contents)


CONFIG_FILE = "/etc/rancher/rke2/config.yaml"
CONFIG_FOLDER = f"{CONFIG_FILE}.d"


def read_config(root: Path) -> dict[str, Any]:
    """What counts on the host with this root: later files win, `key+` appends."""
    merged: dict[str, Any] = {}
    folder = resolve(root, CONFIG_FOLDER)
    names = sorted(file.name for file in folder.glob("*.yaml")) if folder.is_dir() else []
    for path in (CONFIG_FILE, *(f"{CONFIG_FOLDER}/{name}" for name in names)):
        file = resolve(root, path)
        body = yaml.safe_load(file.read_text()) if file.is_file() else None
        for key, value in (body or {}).items():
            if key.endswith("+"):
                merged[key[:-1]] = [*merged.get(key[:-1], []), *value]
            else:
                merged[key] = value
    return merged
