"""The two images that every node needs: what holds a pod, and a shell."""

import subprocess
from pathlib import Path

from lab import tools
from lab.images import archive, keeping
from lab.images.archive import Image, Settings
from lab.images.layer import Entry, File, Folder, Link
from lab.images.names import BUSYBOX, PAUSE
from lab.tools import Report, ToolError

PATH = "/bin:/sbin:/usr/bin:/usr/sbin"
SYSTEM: tuple[Entry, ...] = (
    Folder("tmp", 0o1777),
    File("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
    File("etc/group", b"root:x:0:\n"),
)
"""What a container without a distribution needs beside its programs."""
_INTERPRETER = b"/ld-"
_SECONDS = 120


def pause(program: Path, to: Path) -> Image:
    """The image of `pause`."""
    settings = Settings(command=("/pause",), user="65535:65535")
    return archive.build(PAUSE, [[File("pause", program, 0o755)]], settings, to)


def tools_of(program: Path) -> list[Entry]:
    """Busybox, with a link for each of its tools.

    Raises:
        ToolError: the program needs libraries, which an image of it has not.
    """
    if _INTERPRETER in program.read_bytes()[:4096]:
        raise ToolError(f"{program} needs libraries; an image wants a static busybox")
    listed = subprocess.run(
        [program, "--list"], capture_output=True, text=True, check=True, timeout=_SECONDS
    )
    names = sorted(set(listed.stdout.split()) - {"busybox"})
    return [
        File("bin/busybox", program, 0o755),
        *(Link(f"bin/{name}", "busybox") for name in names),
    ]


def busybox(program: Path, to: Path) -> Image:
    """The image of busybox, with a link for each of its tools.

    Raises:
        ToolError: the program needs libraries, which the image has not.
    """
    settings = Settings(command=("/bin/sh",), environment={"PATH": PATH})
    return archive.build(BUSYBOX, [[*tools_of(program), *SYSTEM]], settings, to)


def basic(report: Report) -> tuple[Path, ...]:
    """The archives of both, for `lab.nodes`; their programs are fetched or built when they are missing.

    Raises:
        ToolError: a program cannot be had.
    """
    programs = tools.ensure(["pause", "busybox"], report)
    with keeping.shelf(report) as kept:
        made = (
            kept.small("pause", pause(programs["pause"], kept.folder)),
            kept.small("busybox", busybox(programs["busybox"], kept.folder)),
        )
    return tuple(image.archive for image in made)
