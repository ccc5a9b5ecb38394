"""Pulumi's own release, fetched into the cache where no `pulumi` is on PATH.

The version is the one of the SDK in the lock file, so engine and program always match.
"""

from __future__ import annotations

import os
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from lab.tools import ToolError
from lab.tools.download import Open, find_checksum, open_url, read_text, save

_ARCHIVE = "https://get.pulumi.com/releases/sdk/pulumi-v{version}-{system}-{arch}.tar.gz"
_CHECKSUMS = (
    "https://github.com/pulumi/pulumi/releases/download/v{version}/pulumi-{version}-checksums.txt"
)
_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_SYSTEMS = ("linux", "darwin")


def cached(env: Mapping[str, str] = os.environ) -> Path | None:
    """The program that an earlier `fetch` left in the cache."""
    program = _folder(env) / "pulumi"
    return program if program.is_file() else None


def fetch(env: Mapping[str, str] = os.environ, open_: Open = open_url) -> Path:
    """Fetch the release and verify it; gives the program.

    Raises:
        ToolError: no network, no release for this machine, or not what its checksum says.
    """
    system, arch = platform.system().lower(), _ARCHITECTURES.get(platform.machine().lower())
    if system not in _SYSTEMS or arch is None:
        raise ToolError(f"Pulumi has no release for {system} on {platform.machine()}")
    names = {"version": version("pulumi"), "system": system, "arch": arch}
    url = _ARCHIVE.format(**names)
    target = _folder(env)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        archive = Path(folder) / url.rsplit("/", 1)[1]
        expected = find_checksum(read_text(_CHECKSUMS.format(**names), open_), archive.name)
        found = save(url, archive, open_)
        if found != expected:
            raise ToolError(f"{url} has SHA-256 {found}, expected {expected}: not used")
        with tarfile.open(archive) as release:
            release.extractall(folder, filter="data")
        shutil.rmtree(target, ignore_errors=True)
        (Path(folder) / "pulumi").rename(target)
    return target / "pulumi"


def _folder(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gpu-clusters" / f"pulumi-{version('pulumi')}"
