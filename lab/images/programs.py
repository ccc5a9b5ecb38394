"""The image of everything that runs inside a caas cluster, with the content that caas/Dockerfile gives it.

One difference: the interpreter is this machine's, not that of the Dockerfile's base, and nothing else of a
distribution is in it, not even a shell.
"""

import hashlib
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from lab.images import archive, interpreter, keeping, layer, packages
from lab.images.archive import Image, Settings
from lab.images.interpreter import LIBRARIES, PREFIX, VERSION
from lab.images.keeping import Shelf
from lab.images.layer import Entry, File, Folder, KeptLayer, Link
from lab.images.packages import HOME
from lab.tools import Report

_PROJECT = Path(__file__).resolve().parents[2]
LOCK = _PROJECT / "caas" / "requirements.lock"
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
    """What the programs import, as the Dockerfile copies it."""
    contents = runpy.run_path(str(project / "caas" / "contents.py"))
    return [File(f"{HOME}/src/{file}", project / file) for file in contents["files"](project)]


def sources(project: Path, package: str) -> Iterator[File]:
    """The files of one package of the project, where images have them."""
    for path in sorted((project / package).rglob("*")):
        inside = path.relative_to(project)
        if path.is_file() and path.suffix in _SUFFIXES and "__pycache__" not in inside.parts:
            yield File(f"{HOME}/src/{inside}", path)


def caas(name: str, report: Report) -> Image:
    """The image under this name (as containerd keeps names: with the registry); made when it is not there.

    Raises:
        ToolError: a package or a library cannot be had.
    """
    ours = code()
    library = interpreter.standard_library(report)
    installed = packages.installed(LOCK, report)
    with keeping.shelf(report) as kept:

        def build() -> Image:
            report("writing the image of the programs of a caas cluster")
            layers: list[KeptLayer | list[Entry]] = [*base(kept, library, installed), ours]
            return archive.build(name, layers, SETTINGS, kept.folder)

        return kept.image("caas", key(name, ours, library, installed), build)


def base(kept: Shelf, library: Path, installed: Path) -> list[KeptLayer]:
    """Interpreter and packages, each a layer that is written once: they are nearly all of an image."""
    return [
        kept.layer("python", _digest(library.name), lambda: _system(library)),
        kept.layer(
            "packages", _digest(library.name, installed.name), lambda: _environment(installed)
        ),
    ]


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


def key(name: str, ours: Iterable[Entry], library: Path, installed: Path) -> str:
    """What an image depends on, without reading what does not change: packages are named by their lock."""
    digest = hashlib.sha256(_digest(name, library.name, installed.name).encode())
    for entry in ours:
        if isinstance(entry, File) and isinstance(entry.content, Path):
            digest.update(f"{entry.path} {entry.mode}\n".encode() + entry.content.read_bytes())
        else:
            digest.update(repr(entry).encode())
    return digest.hexdigest()[:16]


def _digest(*parts: str) -> str:
    """Of what is given and of how layers are written."""
    digest = hashlib.sha256(" ".join([sys.version, *parts]).encode())
    for module in (archive, interpreter, layer, packages):
        digest.update(Path(str(module.__file__)).read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:16]
