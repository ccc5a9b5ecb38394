"""A Go program out of sources that a go.mod and a go.sum pin: built once per machine, kept in the cache."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.tools.build import go_environment
from lab.tools.cache import ToolCache
from lab.tools.golang import find_go, is_offline
from lab.tools.model import Report, ToolError

BUILD_SECONDS = 900
"""Longer than any build took on two cores that did other work too."""
# Functions of a library that is opened by name are looked for when they are called, not at the start.
_WITH_C = {"CGO_ENABLED": "1", "CGO_LDFLAGS": "-O2 -g -Wl,-z,lazy"}


@dataclass(frozen=True, slots=True)
class GoProgram:
    """What is built. `source` is the folder with go.mod and go.sum, `package` the main package.

    `tags` say what to leave out; `linked` is a `package.Variable=value` that the linker sets; `cgo` says
    that a compiler of C is needed.
    """

    name: str
    source: Path
    package: str = "."
    tags: str = ""
    linked: str = ""
    cgo: bool = False

    @property
    def place(self) -> Path:
        """Where it is kept: under another name when what it is built from changes."""
        digest = hashlib.sha256(f"{self.package} {self.tags} {self.linked}".encode())
        for file in sorted(self.source.iterdir()):
            digest.update(file.read_bytes())
        return ToolCache().folder / f"{self.name}-{digest.hexdigest()[:16]}"

    def built(self, report: Report) -> Path:
        """The program, out of the cache or built now.

        Raises:
            ToolError: it cannot be built here; one sentence that says why.
        """
        program = self.place
        program.parent.mkdir(parents=True, exist_ok=True)
        # Not the cache's own lock: a tool of the lab and this one may be built at the same time.
        with program.with_name(f".{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():
                report(f"building {self.name} from pinned sources; this is done once")
                self._build(program, report)
        return program

    def _build(self, program: Path, report: Report) -> None:
        if self.cgo and shutil.which("gcc") is None:
            raise ToolError(
                f"{self.name} cannot be built: there is no gcc; install gcc and libc6-dev"
            )
        cache = ToolCache()
        go = find_go(cache, report, offline=is_offline())
        with cache.workspace() as folder:
            made = folder / program.name
            command = [
                *(str(go), "build", "-trimpath", "-buildvcs=false", "-tags", self.tags),
                *("-ldflags", f"-s -w{' -X ' + self.linked if self.linked else ''}"),
                *("-o", str(made), self.package),
            ]
            try:
                done = subprocess.run(
                    command,
                    cwd=self.source,
                    capture_output=True,
                    text=True,
                    timeout=BUILD_SECONDS,
                    check=False,
                    env=go_environment(os.environ) | (_WITH_C if self.cgo else {}),
                )
            except subprocess.TimeoutExpired:
                raise ToolError(f"{self.name} was not built in {BUILD_SECONDS} s") from None
            if done.returncode != 0:
                lines = done.stderr.strip().splitlines() or ["no output"]
                raise ToolError(f"{self.name} cannot be built: {lines[-1]}")
            made.replace(program)


def module_folder(source: Path, module: str, report: Report) -> Path:
    """The sources of a module, of the version and the sum that go.mod and go.sum in `source` pin.

    Raises:
        ToolError: they cannot be had; one sentence that says why.
    """
    done = subprocess.run(
        [find_go(ToolCache(), report, offline=is_offline()), "mod", "download", "-json", module],
        cwd=source,
        env=go_environment(os.environ),
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    found = json.loads(done.stdout or "{}")
    if done.returncode != 0 or found.get("Error"):
        words = found.get("Error") or done.stderr.strip()
        raise ToolError(
            f"the sources of {module} cannot be fetched ({words}); check GOPROXY (`go env GOPROXY`)"
        )
    return Path(found["Dir"])
