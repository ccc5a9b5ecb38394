"""The image of everything that runs inside a caas cluster, with the content that caas/Dockerfile gives it.

One difference: the interpreter is this machine's, not that of the Dockerfile's base, and nothing else of a
distribution is in it, not even a shell.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from lab.control_plane.files import write_atomic
from lab.images import archive, interpreter, packages
from lab.images.archive import Image, Settings
from lab.images.interpreter import LIBRARIES, PREFIX, VERSION
from lab.images.layer import Entry, File, Folder, Link
from lab.images.packages import HOME
from lab.images.small import folder
from lab.tools import Report

_PROJECT = Path(__file__).resolve().parents[2]
LOCK = _PROJECT / "caas" / "requirements.lock"
_OURS = ("gpuclusters/domain", "caas")
_KEPT = 3
_SUFFIXES = frozenset({".py", ".yaml", ".json"})
SETTINGS = Settings(
    command=(
        "python",
        "-c",
        "raise SystemExit('choose a program: python -m caas.api, caas.controllers or caas.device_plugin')",
    ),
    environment={
        "PATH": f"/{HOME}/bin:/{PREFIX}/bin:/usr/bin:/bin",
        "PYTHONPATH": f"/{HOME}/src",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "LD_LIBRARY_PATH": f"/{LIBRARIES}",
    },
    user="65532:65532",
)


def code(project: Path = _PROJECT) -> list[Entry]:
    """Our two packages, as the Dockerfile copies them, without what tests and compilers leave there."""
    found: list[Entry] = [
        File(f"{HOME}/src/gpuclusters/__init__.py", project / "gpuclusters" / "__init__.py")
    ]
    for package in _OURS:
        for path in sorted((project / package).rglob("*")):
            inside = path.relative_to(project)
            if path.is_file() and path.suffix in _SUFFIXES and "__pycache__" not in inside.parts:
                found.append(File(f"{HOME}/src/{inside}", path))
    return found


def caas(name: str, report: Report) -> Image:
    """The image under this name (as containerd keeps names: with the registry); made when it is not there.

    Raises:
        ToolError: a package or a library cannot be had.
    """
    ours = code()
    library = interpreter.standard_library(report)
    installed = packages.installed(LOCK, report)
    known = folder() / f"caas-{_key(name, ours, installed)}.json"
    if known.exists():
        digest = str(json.loads(known.read_text())["digest"])
        found = Image(name, digest, folder() / f"{digest.removeprefix('sha256:')}.tar")
        if found.archive.exists():
            return found
    report("writing the image of the programs of a caas cluster")
    made = archive.build(
        name,
        [_system(library), [*_environment(installed)], ours],
        SETTINGS,
        folder(),
    )
    write_atomic(known, json.dumps({"name": made.name, "digest": made.digest}).encode())
    forget_old(folder())
    return made


def forget_old(kept: Path) -> None:
    """Remove all but the last images: each change of our code makes another one of 200 MB."""
    records = sorted(kept.glob("caas-*.json"), key=lambda path: path.stat().st_mtime)
    living = {json.loads(path.read_text())["digest"] for path in records[-_KEPT:]}
    for path in records[:-_KEPT]:
        digest = json.loads(path.read_text())["digest"]
        path.unlink()
        if digest not in living:
            (kept / f"{digest.removeprefix('sha256:')}.tar").unlink(missing_ok=True)


def _system(library: Path) -> list[Entry]:
    return [
        *interpreter.entries(library),
        Folder("tmp", 0o1777),
        File("etc/passwd", b"root:x:0:0::/:/bin/false\nprograms:x:65532:65532::/:/bin/false\n"),
        File("etc/group", b"root:x:0:\nprograms:x:65532:\n"),
    ]


def _environment(installed: Path) -> Iterator[Entry]:
    """The virtual environment with the packages, and the libraries that those load."""
    yield Link(f"{HOME}/bin/python", f"/{PREFIX}/bin/python{VERSION}")
    yield File(f"{HOME}/pyvenv.cfg", f"home = /{PREFIX}/bin\n".encode())
    yield from packages.entries(installed)
    yield from interpreter.libraries(sorted(installed.rglob("*.so")))


def _key(name: str, ours: list[Entry], installed: Path) -> str:
    """What the image depends on, without reading what does not change: packages are named by their lock."""
    digest = hashlib.sha256(f"{name} {sys.version} {installed.name}".encode())
    for source in (Path(__file__), Path(archive.__file__), Path(interpreter.__file__)):
        digest.update(source.read_bytes())
    for entry in ours:
        if isinstance(entry, File) and isinstance(entry.content, Path):
            digest.update(f"{entry.path}\n".encode() + entry.content.read_bytes())
    return digest.hexdigest()[:16]
