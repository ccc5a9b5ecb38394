"""Programs and data of several Debian packages that need each other, unpacked into one folder of the cache.

Nothing is installed on the machine.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Sequence
from pathlib import Path

from lab.tools.cache import cache_root
from lab.tools.debian import FetchError, fetch
from lab.tools.errors import ToolError


def unpacked(name: str, packages: Sequence[str]) -> Path:
    """The folder `name` of the cache with the files of these packages.

    Raises:
        ToolError: they cannot be had; one sentence that says why.
    """
    folder = cache_root() / "debian" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            _unpack(folder, packages)
    return folder


def _unpack(folder: Path, packages: Sequence[str]) -> None:
    wanted = ", ".join(packages)
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise ToolError(f"needs apt-get and dpkg-deb to fetch {wanted}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        fetch(packages, folder, folder)
    except FetchError as error:
        raise ToolError(f"{wanted} cannot be downloaded here: {error}") from None
    for archive in folder.glob("*.deb"):
        archive.unlink()
    (folder / ".complete").touch()
