"""The two images that every node needs: what holds a pod, and a shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab import tools
from lab.images import archive
from lab.images.archive import Image, Settings
from lab.images.layer import Entry, File, Folder, Link
from lab.images.names import BUSYBOX, PAUSE
from lab.tools import Report, ToolError
from lab.tools.cache import cache_root

_PATH = "/bin:/sbin:/usr/bin:/usr/sbin"
_INTERPRETER = b"/ld-"
_SECONDS = 20


def folder() -> Path:
    """Where archives of images are kept, shared by all labs of a user."""
    return cache_root() / "images"


def pause(program: Path, to: Path) -> Image:
    """The image of `pause`."""
    settings = Settings(command=("/pause",), user="65535:65535")
    return archive.build(PAUSE, [[File("pause", program, 0o755)]], settings, to)


def busybox(program: Path, to: Path) -> Image:
    """The image of busybox, with a link for each of its tools.

    Raises:
        ToolError: the program needs libraries, which the image has not.
    """
    if _INTERPRETER in program.read_bytes()[:4096]:
        raise ToolError(f"{program} needs libraries; an image wants a static busybox")
    listed = subprocess.run(
        [program, "--list"], capture_output=True, text=True, check=True, timeout=_SECONDS
    )
    entries: list[Entry] = [
        File("bin/busybox", program, 0o755),
        Folder("tmp", 0o1777),
        File("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
        File("etc/group", b"root:x:0:\n"),
    ]
    names = sorted(set(listed.stdout.split()) - {"busybox"})
    entries += [Link(f"bin/{name}", "busybox") for name in names]
    settings = Settings(command=("/bin/sh",), environment={"PATH": _PATH})
    return archive.build(BUSYBOX, [entries], settings, to)


def basic(report: Report) -> tuple[Path, ...]:
    """The archives of both, for `lab.nodes`; their programs are fetched or built when they are missing.

    Raises:
        ToolError: a program cannot be had.
    """
    programs = tools.ensure(["pause", "busybox"], report)
    made = (pause(programs["pause"], folder()), busybox(programs["busybox"], folder()))
    return tuple(image.archive for image in made)
