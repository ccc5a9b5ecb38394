"""The image that stands for all that no archive has: busybox, and a program that says so and waits."""

from pathlib import Path

from lab import tools
from lab.images import archive, keeping, small
from lab.images.archive import Image, Settings
from lab.images.layer import Entry, File, Link
from lab.images.names import STAND_IN
from lab.tools import Report

ENTRY = "bin/stand-in"
PROGRAM = Path(__file__).with_name("stand-in.sh")
CALLED = (
    "usr/bin/kata-deploy",
    "usr/bin/nfd-master",
    "usr/bin/nfd-worker",
    "usr/bin/gpu-operator",
)
"""What pods of the lab's own charts call by name: the image has each as a link to its program."""


def image(busybox: Path, to: Path) -> Image:
    """The image, out of a static busybox.

    Raises:
        ToolError: the program needs libraries, which the image has not.
    """
    entries: list[Entry] = [
        *small.tools_of(busybox),
        *small.SYSTEM,
        File(ENTRY, PROGRAM, 0o755),
        *(Link(path, f"/{ENTRY}") for path in CALLED),
    ]
    settings = Settings(entry=(f"/{ENTRY}",), environment={"PATH": small.PATH})
    return archive.build(STAND_IN, [entries], settings, to)


def stand_in(report: Report) -> Image:
    """The image; busybox is fetched when it is missing.

    Raises:
        ToolError: busybox cannot be had.
    """
    program = tools.ensure(["busybox"], report)["busybox"]
    with keeping.shelf(report) as kept:
        return kept.small("stand-in", image(program, kept.folder))
