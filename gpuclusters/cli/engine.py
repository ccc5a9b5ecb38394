"""Which engine runs the program: Pulumi's own, or the embedded one where Pulumi cannot be had."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import IO

import httpx

from gpuclusters.cli.errors import UsageError

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
    """Fetch the release and verify it; gives the program. NoReleaseError says why it cannot be had."""
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
        except httpx.HTTPStatusError as error:
            raise NoReleaseError(f"{url}: status {error.response.status_code}") from error
        except httpx.HTTPError as error:
            raise NoReleaseError(f"{httpx.URL(url).host} cannot be reached") from error
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


CHOICE = "GPU_CLUSTERS_ENGINE"
"""Environment variable that takes the choice away from us: `pulumi` or `embedded`."""


class Kind(StrEnum):
    PULUMI = "pulumi"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class Engine:
    """A command that understands Pulumi's verbs and flags."""

    kind: Kind
    command: tuple[str, ...]
    reason: str

    @property
    def line(self) -> str:
        if self.kind is Kind.PULUMI:
            return f"engine: Pulumi ({self.reason})"
        return (
            f"engine: embedded, with stand-ins for provider plugins ({self.reason}). "
            "In production, install Pulumi: https://www.pulumi.com/docs/install"
        )

    def call(
        self,
        *args: str,
        folder: Path,
        env: Mapping[str, str],
        stdin: IO[str] | None = None,
        stdout: int | None = None,
    ) -> int:
        """Run a verb with this terminal; gives its exit code. Ctrl-C goes to the engine alone."""
        with subprocess.Popen(
            [*self.command, *args], cwd=folder, env=dict(env), stdin=stdin, stdout=stdout
        ) as process:
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:
                    # The terminal has told the engine too, and it knows what to leave in what state.
                    continue


def choose(env: Mapping[str, str] = os.environ, *, may_fetch: bool = True) -> Engine:
    """The engine for this machine: Pulumi from PATH, else its official release, else the embedded one."""
    wanted = env.get(CHOICE, "")
    code = "command.engine-choice"
    if wanted not in ("", *Kind):
        said = f"{CHOICE} is neither 'pulumi' nor 'embedded' (got {wanted!r})"
        raise UsageError(f"{said}; unset it to have the engine chosen", code)
    if wanted == Kind.EMBEDDED:
        return _embedded(f"{CHOICE} asks for it")
    installed = shutil.which("pulumi", path=env.get("PATH"))
    if installed:
        return Engine(Kind.PULUMI, (installed,), f"found at {installed}")
    try:
        program = _release(env, may_fetch=may_fetch)
    except NoReleaseError as error:
        if wanted == Kind.PULUMI:
            said = f"{CHOICE} asks for Pulumi, there is no 'pulumi' on PATH, and {error}"
            remedy = "install it (https://www.pulumi.com/docs/install) or unset the variable"
            raise UsageError(f"{said}; {remedy}", code) from error
        return _embedded(f"no 'pulumi' on PATH, and {error}")
    return Engine(Kind.PULUMI, (str(program),), f"official release in {program.parent}")


def _release(env: Mapping[str, str], *, may_fetch: bool) -> Path:
    program = cached(env)
    if program is not None:
        return program
    if env.get("GPU_CLUSTERS_OFFLINE", "") not in ("", "0"):
        raise NoReleaseError("GPU_CLUSTERS_OFFLINE forbids to download it")
    if not may_fetch:
        raise NoReleaseError("it is not in the cache; `gpu-clusters up` tries to download it")
    return fetch(env)


def _embedded(reason: str) -> Engine:
    for found in entry_points(group="gpu_clusters", name="engine"):
        return Engine(Kind.EMBEDDED, (sys.executable, "-m", found.value), reason)
    raise UsageError(
        f"there is no engine: {reason}, and the embedded one is not installed; install Pulumi "
        "(https://www.pulumi.com/docs/install) or `pip install gpu-clusters-engine`",
        "command.engine-choice",
    )
