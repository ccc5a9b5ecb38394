"""The packages of a lock file, installed once into the cache, as files of an image."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lab.images.bytecode import compile_all
from lab.images.interpreter import VERSION, tree
from lab.images.layer import Entry
from lab.tools import Report, ToolError
from lab.tools.cache import ToolCache
from lab.tools.catalogue import host_platform

HOME = "opt/gpu-clusters"
"""The virtual environment in the image."""
_SECONDS = 900
# Written at installation: they differ from one machine to the next, and no program reads them.
_OF_THE_INSTALLATION = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})


def installed(lock: Path, report: Report) -> Path:
    """The folder with the packages of `lock`, fetched by hash when it is not there yet.

    Raises:
        ToolError: a package cannot be fetched for this interpreter.
    """
    content = f"{lock.read_text()}{VERSION}{host_platform()} compiled"
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    cache = ToolCache()
    folder = cache.folder / f"packages-{digest}"
    if folder.exists():
        return folder
    with cache.lock(report):
        if not folder.exists():
            report(f"fetching the packages of {lock.name}; this is done once")
            _install(cache, lock, folder)
    return folder


def target() -> str:
    return f"{HOME}/lib/python{VERSION}/site-packages"


def _install(cache: ToolCache, lock: Path, folder: Path) -> None:
    with cache.workspace() as work:
        made = work / folder.name
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-compile"),
            *("--target", str(made), "--requirement", str(lock)),
        ]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ToolError(
                f"the packages of {lock} were not fetched within {_SECONDS} s; try again"
            ) from None
        if answer.returncode != 0:
            lines = [line for line in answer.stderr.splitlines() if line.strip()] or ["no output"]
            raise ToolError(
                f"the packages of {lock} cannot be installed: {lines[-1]}; see to pip's index"
            )
        # Scripts name the interpreter of this machine; programs are started as modules.
        shutil.rmtree(made / "bin", ignore_errors=True)
        compile_all(made, target())
        made.rename(folder)


def entries(folder: Path) -> Iterator[Entry]:
    for entry in tree(folder, target()):
        name = Path(entry.path)
        if not (name.parent.suffix == ".dist-info" and name.name in _OF_THE_INSTALLATION):
            yield entry
