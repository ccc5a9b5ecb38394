"""Pulumi's own release, fetched into the cache where no `pulumi` is on PATH.

The version is the one of the SDK in the lock file, so engine and program always match.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import httpx

_ARCHIVE = "https://get.pulumi.com/releases/sdk/pulumi-v{version}-{system}-{arch}.tar.gz"
_CHECKSUMS = (
    "https://github.com/pulumi/pulumi/releases/download/v{version}/pulumi-{version}-checksums.txt"
)
_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_SYSTEMS = ("linux", "darwin")
# A machine without a way out finds that out quickly; one with a slow way out may take its time.
_TIMEOUT = httpx.Timeout(30.0, connect=3.0)


class NoReleaseError(Exception):
    """Pulumi's release cannot be had here; the message says why."""


def cached(env: Mapping[str, str] = os.environ) -> Path | None:
    """The program that an earlier `fetch` left in the cache."""
    program = _folder(env) / "pulumi"
    return program if program.is_file() else None


def fetch(
    env: Mapping[str, str] = os.environ, transport: httpx.BaseTransport | None = None
) -> Path:
    """Fetch the release and verify it; gives the program.

    Raises:
        NoReleaseError: no network, no release for this machine, or not what its checksum says.
    """
    system, arch = platform.system().lower(), _ARCHITECTURES.get(platform.machine().lower())
    if system not in _SYSTEMS or arch is None:
        raise NoReleaseError(f"Pulumi has no release for {system} on {platform.machine()}")
    names = {"version": version("pulumi"), "system": system, "arch": arch}
    url = _ARCHIVE.format(**names)
    target = _folder(env)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=target.parent) as folder,
        httpx.Client(timeout=_TIMEOUT, follow_redirects=True, transport=transport) as client,
    ):
        archive = Path(folder) / url.rsplit("/", 1)[1]
        try:
            listed = client.get(_CHECKSUMS.format(**names)).raise_for_status().text
            with client.stream("GET", url) as answer, archive.open("wb") as out:
                answer.raise_for_status()
                for chunk in answer.iter_bytes():
                    out.write(chunk)
        except httpx.HTTPError as error:
            raise NoReleaseError(f"{url} cannot be downloaded: {error}") from error
        expected = {name: digest for digest, name in map(str.split, listed.splitlines())}
        with archive.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != expected.get(archive.name):
            raise NoReleaseError(
                f"{url} has SHA-256 {found}, expected {expected.get(archive.name)}: not used"
            )
        with tarfile.open(archive) as release:
            release.extractall(folder, filter="data")
        shutil.rmtree(target, ignore_errors=True)
        (Path(folder) / "pulumi").rename(target)
    return target / "pulumi"


def _folder(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gpu-clusters" / f"pulumi-{version('pulumi')}"
