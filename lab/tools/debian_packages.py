"""Programs and data of several Debian packages that need each other, unpacked into one folder of the cache.

Nothing is installed on the machine.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.tools.cache import cache_root
from lab.tools.errors import ToolError

_SECONDS = 60


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
        fetched = _apt_get(folder, "download", *packages)
        if fetched.returncode:
            # A machine just installed has no lists of packages, or old ones.
            _apt_get(folder, "update")
            fetched = _apt_get(folder, "download", *packages)
    except subprocess.TimeoutExpired:
        raise ToolError(f"{wanted} cannot be downloaded here: it took too long") from None
    if fetched.returncode:
        reason = fetched.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise ToolError(f"{wanted} cannot be downloaded here: {reason[0]}")
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
        archive.unlink()
    (folder / ".complete").touch()


def _apt_get(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # As root, apt would fetch as the user _apt, who may not write into the cache.
        ["apt-get", "-q", "-o", "APT::Sandbox::User=root", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
