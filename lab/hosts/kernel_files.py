"""Files by which a simulated kernel shows devices and drivers."""

from __future__ import annotations

import os
from pathlib import Path

from lab.hosts.board import PciDevice


def graphics_node(device: PciDevice) -> str:
    """What a graphics driver calls a GPU below /dev/dri; 0 is the console of the machine's BMC."""
    return f"card{device.module}"


def write(path: Path, content: str, mode: int = 0o644) -> None:
    """A file with this line, left alone where it has it already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and content and path.read_text() == f"{content}\n":
        return
    path.write_text(f"{content}\n" if content else "")
    path.chmod(mode)


def link(path: Path, target: Path) -> None:
    """A relative link: an absolute one would lead out of the host when read from outside."""
    if not path.is_symlink():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(target, path.parent))
