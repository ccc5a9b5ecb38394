"""An image for pods that bring a Python program of ours, as proofs do.

It has the interpreter, the packages of the caas image, a shell and our code. On hardware such a program runs
in an image of PyTorch; here is no PyTorch and no GPU, and the programs say that they measured a processor.
"""

from pathlib import Path

from lab import tools
from lab.images import archive, interpreter, keeping, packages, programs, small
from lab.images.archive import Image, Settings
from lab.images.layer import Entry, File, KeptLayer
from lab.images.names import PYTHON
from lab.images.packages import HOME
from lab.tools import Report

_PROJECT = Path(__file__).resolve().parents[2]
_PACKAGES = ("gpuclusters", "caas", "lab/pods", "gpuclusters/proof/scripts")
_START = Path(__file__).with_name("python3.sh")
SETTINGS = Settings(
    command=("python3",),
    environment={
        **programs.SETTINGS.environment,
        "PATH": f"{programs.SETTINGS.environment['PATH']}:/sbin",
    },
    user="65534:65534",
)


def code(project: Path = _PROJECT) -> list[Entry]:
    """What programs in the image import, the proofs' own programs, and the `python3` that calls them."""
    found: list[Entry] = [
        File(f"{HOME}/src/lab/__init__.py", project / "lab" / "__init__.py"),
        File(f"{HOME}/bin/python3", _START, 0o755),
    ]
    for package in _PACKAGES:
        found += programs.sources(project, package)
    return found


def python(report: Report) -> Image:
    """The image; made when it is not there.

    Raises:
        ToolError: a package, a library or busybox cannot be had.
    """
    busybox = tools.ensure(["busybox"], report)["busybox"]
    ours = [*code(), *small.tools_of(busybox)]
    library = interpreter.standard_library(report)
    installed = packages.installed(programs.LOCK, report)
    with keeping.shelf(report) as kept:

        def build() -> Image:
            report("writing the image for programs of proofs")
            layers: list[KeptLayer | list[Entry]] = [*programs.base(kept, library, installed), ours]
            return archive.build(PYTHON, layers, SETTINGS, kept.folder)

        return kept.image("python", programs.key(PYTHON, ours, library, installed), build)
