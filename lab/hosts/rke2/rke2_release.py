"""A release of RKE2 for simulated hosts: archives of the real names and layout, with stand-ins in them.

The layout is that of RKE2's own `rke2.linux-amd64.tar.gz` (bundle/ of its sources): `bin/rke2`,
`bin/rke2-killall.sh`, `bin/rke2-uninstall.sh`, `lib/systemd/system/*`, `share/rke2/*`. Made anew, byte for
byte the same every time, so that its digest can be pinned like a real one's.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab.hosts.machine import resolve

ARCHIVE = "rke2.linux-amd64.tar.gz"
CHECKSUMS = "sha256sum-amd64.txt"
PROGRAM = "rke2-stand-in"
"""Under which name the stand-in itself is on every host, before anything is installed."""
_IMPORTS_FROM = {32: (13, 2), 33: (10, 1), 34: (6, 1), 35: (3, 1)}
"""First patch and revision by minor that are pinned to K3s with its change 13680 (go.mod of RKE2's tags)."""
_IMPORTS_ALWAYS = 36
IMAGES = ("rke2-images-core.linux-amd64.tar.zst", "rke2-images-cilium.linux-amd64.tar.zst")

_UNIT = """\
[Unit]
Description=Rancher Kubernetes Engine v2 ({role})
Documentation=https://github.com/rancher/rke2#readme
Wants=network-online.target
After=network-online.target
Conflicts=rke2-{other}.service

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/rke2-{role}
EnvironmentFile=-/etc/sysconfig/rke2-{role}
KillMode=process
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStart=/usr/local/bin/rke2 {role}
"""
_SYSCTL = "vm.panic_on_oom=0\nvm.overcommit_memory=1\nkernel.panic=10\nkernel.panic_on_oops=1\n"
_KILLALL = """\
#!/bin/sh
systemctl stop rke2-server.service 2>/dev/null || true
systemctl stop rke2-agent.service 2>/dev/null || true
# The real one ends the containers and unmounts what was theirs.
/usr/local/bin/rke2 killall
"""
# The order of the real one: stop, disable, files, data, itself at last.
_UNINSTALL = """\
#!/bin/sh
set -e
/usr/local/bin/rke2-killall.sh
systemctl disable rke2-server.service || true
systemctl disable rke2-agent.service || true
rm -f /usr/local/lib/systemd/system/rke2-server.service /usr/local/lib/systemd/system/rke2-agent.service
systemctl daemon-reload
rm -f /usr/local/bin/rke2 /usr/local/bin/rke2-killall.sh
rm -rf /usr/local/share/rke2
rm -rf /etc/rancher/rke2 /etc/rancher/node /etc/cni /opt/cni/bin /var/lib/kubelet /var/lib/rancher/rke2
rm -f /usr/local/bin/rke2-uninstall.sh
"""


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
    contents = {
        "bin/rke2": (f'#!/bin/sh\nexec {PROGRAM} {version} "$@"\n', 0o755),
        "bin/rke2-killall.sh": (_KILLALL, 0o755),
        "bin/rke2-uninstall.sh": (_UNINSTALL, 0o755),
        "lib/systemd/system/rke2-server.service": (
            _UNIT.format(role="server", other="agent"),
            0o644,
        ),
        "lib/systemd/system/rke2-agent.service": (
            _UNIT.format(role="agent", other="server"),
            0o644,
        ),
        "share/rke2/rke2-cis-sysctl.conf": (_SYSCTL, 0o644),
    }
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (text, mode) in contents.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    packed = io.BytesIO()
    # Stored: what a compressor makes of it is another thing with the next release of zlib.
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=0) as stream:
        stream.write(raw.getvalue())
    return packed.getvalue()


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
