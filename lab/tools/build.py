"""Building tools from the modules pinned under `modules/`, one `go build` per module."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.tools.catalogue import Tool
from lab.tools.model import Report, ToolError, duration

MODULES = Path(__file__).parent / "modules"
_PROGRESS_SECONDS = 10.0
_POLL_SECONDS = 0.1
_GIB = 1 << 30
# Measured, from empty caches: sources, Go's build cache, and the programs themselves.
_NEEDED_GIB: Mapping[str, float] = {
    "kubernetes": 6.0,
    "helm": 2.0,
    "containerd": 2.0,
    "etcd": 1.0,
    "cni": 0.5,
    "coredns": 2.0,
    "pause": 0.2,
    "cilium": 4.0,
}


def go_environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a build: the user's caches and proxy, but nothing that changes the result."""
    dropped = {"GOOS", "GOARCH", "GOEXPERIMENT", "GO111MODULE", "GOBIN"}
    kept = {name: value for name, value in base.items() if name not in dropped}
    return kept | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def go_command(go: Path, tools: Sequence[Tool], target: Path) -> list[str]:
    """The `go build` that puts `tools`, all of one module, into `target`.

    A single tool is named on the command line, because Go would call etcd `server`.
    """
    variables: dict[str, str] = {}
    for tool in tools:
        variables |= tool.link_variables
    link = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in variables.items())])
    output = target / tools[0].file_name if len(tools) == 1 else target
    tags = sorted({tag for tool in tools for tag in tool.tags})
    return [
        *(str(go), "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", link),
        *(("-tags", ",".join(tags)) if tags else ()),
        *("-o", f"{output}{os.sep if len(tools) > 1 else ''}"),
        *(tool.package for tool in tools),
    ]


def build(go: Path, tools: Sequence[Tool], target: Path, report: Report) -> dict[str, Path]:
    """Build `tools` (all of one module) into `target`.

    Raises `ToolError` with the compiler's words when it fails or the disk has too little room.
    """
    module = tools[0].module
    called = Path(module).name
    environment = go_environment(os.environ)
    _check_space(go, module, target, environment)
    log = target / f"{called}.log"
    started = time.monotonic()
    names = ", ".join(tool.name for tool in tools)
    report(f"building {names} from the pinned sources; this is done once")
    with log.open("wb") as out:
        process = subprocess.Popen(
            go_command(go, tools, target),
            cwd=MODULES / module,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = _follow(process, names, log, started, report)
        except BaseException:
            _kill(process)
            raise
    if code != 0:
        raise ToolError(_failure(names, module, log.read_text(errors="replace")))
    report(f"built {names} in {duration(time.monotonic() - started)}")
    return {tool.name: target / tool.file_name for tool in tools}


def _follow(
    process: subprocess.Popen[bytes], names: str, log: Path, started: float, report: Report
) -> int:
    due = _PROGRESS_SECONDS
    while (code := process.poll()) is None:
        time.sleep(_POLL_SECONDS)
        elapsed = time.monotonic() - started
        if elapsed >= due:
            packages = log.read_bytes().count(b"\n")
            report(f"building {names}: {duration(elapsed)}, {packages} packages compiled")
            due += _PROGRESS_SECONDS
    return code


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Stop the build with all compilers that it started: they are in a session of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _failure(names: str, module: str, output: str) -> str:
    # With -v, every compiled package is a line of its own: no blank in it, nothing of an error.
    lines = [line for line in output.splitlines() if " " in line.strip()]
    if any("no space left on device" in line for line in lines):
        return (
            f"building {names} filled the disk; free some GiB (`go clean -cache` helps) and retry"
        )
    if any(word in line for line in lines for word in ("dial tcp", "no such host", "403", "404")):
        return (
            f"the sources of {names} cannot be fetched ({lines[-1].strip()}); "
            f"check GOPROXY (`go env GOPROXY`), or put {names} on PATH"
        )
    words = "; ".join(line.strip() for line in lines[-3:]) or "no output"
    command = shlex.join(["cd", str(MODULES / module)])
    return f"building {names} failed: {words} (in {command})"


def _check_space(go: Path, module: str, target: Path, environment: Mapping[str, str]) -> None:
    answer = subprocess.run(
        [go, "env", "GOCACHE", "GOMODCACHE"],
        capture_output=True,
        text=True,
        env=dict(environment),
        check=False,
    )
    if answer.returncode != 0:
        raise ToolError(f"{go} env failed: {answer.stderr.strip()}; repair the Go installation")
    folders = [target, *(Path(line) for line in answer.stdout.splitlines() if line.strip())]
    needed = _NEEDED_GIB[Path(module).name]
    for folder in folders:
        free = shutil.disk_usage(_existing(folder)).free / _GIB
        if free < needed:
            raise ToolError(
                f"building the {module} tools needs about {needed:.0f} GiB and the disk of "
                f"{folder} has {free:.1f} GiB free; free some, or point XDG_CACHE_HOME, GOCACHE "
                f"and GOMODCACHE to a larger disk"
            )


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder
