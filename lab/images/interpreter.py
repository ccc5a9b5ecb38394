"""This machine's Python as files of an image: interpreter, standard library, the libraries that they load."""

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from lab.images.bytecode import compile_all
from lab.images.layer import Entry, File, Link
from lab.tools import Report, ToolError
from lab.tools.cache import ToolCache
from lab.tools.catalogue import host_platform

PREFIX = "usr/local"
LIBRARIES = f"{PREFIX}/lib/machine"
"""Where shared libraries lie; the image names it in LD_LIBRARY_PATH, because it has no cache of them."""
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_SECONDS = 120
_LEFT_OUT = frozenset(
    {
 "site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3",
        "ensurepip",
    }
)  # fmt: skip
_UNCHECKED = (1).to_bytes(4, "little")
_NEEDS_A_SCREEN = re.compile(r"^_tkinter\.")


def standard_library(report: Report) -> Path:
    """A copy of the standard library with bytecode, made once.

    Raises:
        ToolError: it cannot be compiled.
    """
    cache = ToolCache()
    source = Path(sys.base_prefix) / "lib" / f"python{VERSION}"
    digest = hashlib.sha256(f"{sys.version}{source}{host_platform()}".encode()).hexdigest()[:16]
    folder = cache.folder / f"python-{digest}"
    if folder.exists():
        return folder
    with cache.lock(report), cache.workspace() as work:
        if not folder.exists():
            report("preparing this machine's Python for images; this is done once")
            made = work / folder.name
            for entry in tree(source, ""):
                if isinstance(entry, File) and isinstance(entry.content, Path):
                    copy = made / entry.path.lstrip("/")
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(entry.content, copy)
            compile_all(made, f"{PREFIX}/lib/python{VERSION}")
            made.rename(folder)
    return folder


def entries(library: Path) -> list[Entry]:
    """The interpreter under /usr/local, as an image of Python has it, with its standard library.

    Raises:
        ToolError: its libraries cannot be found out.
    """
    program = Path(sys.base_prefix) / "bin" / f"python{VERSION}"
    found: list[Entry] = [
        File(f"{PREFIX}/bin/python{VERSION}", program.resolve(), 0o755),
        Link(f"{PREFIX}/bin/python3", f"python{VERSION}"),
    ]
    found += tree(library, f"{PREFIX}/lib/python{VERSION}")
    objects = [program, *(library / "lib-dynload").glob("*.so")]
    return found + libraries(path for path in objects if not _NEEDS_A_SCREEN.match(path.name))


def tree(folder: Path, target: str) -> Iterator[Entry]:
    """The files of a folder, without what no program in an image needs."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        wanted = not _LEFT_OUT.intersection(inside.parts)
        wanted = wanted and not inside.parts[0].startswith("config-")
        # Bytecode of the machine is valid for its times of files, of which an image has none.
        wanted = wanted and (path.suffix != ".pyc" or _is_lasting(path))
        if wanted and path.is_file() and not _NEEDS_A_SCREEN.match(path.name):
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            yield File(f"{target}/{inside}", path, mode)


def _is_lasting(bytecode: Path) -> bool:
    """Whether bytecode is valid whatever the times of files: its second word says so (PEP 552)."""
    with bytecode.open("rb") as file:
        return file.read(8)[4:] == _UNCHECKED


def libraries(objects: Iterable[Path]) -> list[Entry]:
    """The shared libraries that these programs and libraries load, and the loader itself.

    Raises:
        ToolError: there is no `ldd`, or one of them has a library that is not there.
    """
    try:
        answer = subprocess.run(
            ["ldd", *objects], capture_output=True, text=True, timeout=_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(
            f"the libraries of {sys.executable} cannot be found out with `ldd`: {error}"
        ) from error
    found: dict[str, Entry] = {}
    for name, path in parse(answer):
        if path is None:
            raise ToolError(
                f"the library {name}, which {sys.executable} loads, is not on this machine"
            )
        # A loader is named in every program with its whole path, and nothing looks for it elsewhere.
        target = name.lstrip("/") if "/" in name else f"{LIBRARIES}/{name}"
        found[target] = File(target, path.resolve(), 0o755)
    return list(found.values())


def parse(output: str) -> list[tuple[str, Path | None]]:
    """Names and places in what `ldd` says; the place is None for a library that is missing."""
    found: list[tuple[str, Path | None]] = []
    for line in output.splitlines():
        words = line.split()
        if "=>" in words:
            place = words[2]
            found.append((words[0], None if place == "not" else Path(place)))
        elif len(words) == 2 and words[0].startswith("/") and words[1].startswith("("):
            found.append((words[0], Path(words[0])))
    return found
