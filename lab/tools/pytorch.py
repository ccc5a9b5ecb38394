"""PyTorch for the processor alone, with a Python of its own: Debian's build.

The wheels for Linux in PyPI are built with CUDA, gigabytes with what they need, and there are no others.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from lab.tools.debian_packages import unpacked
from lab.tools.model import ToolError

_PACKAGE = "python3-torch"
_LOADER = "libc6"
"""The C library goes with the loader of programs, which is the machine's."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    python: Path
    environment: dict[str, str]
    """What it needs to find its own libraries; nothing of the caller's but PATH."""


def ensure() -> Interpreter:
    """A Python that has PyTorch, unpacked now if it is not in the cache: 250 MB of packages.

    Raises:
        ToolError: it cannot be had; one sentence that says why.
    """
    tree = unpacked("pytorch", [_PACKAGE], whole_but=_LOADER)
    usr = tree / "usr"
    system = next(usr.glob("lib/*-linux-gnu"), None)
    if system is None or not (usr / "bin/python3").exists():
        raise ToolError(f"there is no Python in Debian's package {_PACKAGE} and what it needs")
    # Debian chooses among libraries for matrices by links that its installation would make.
    libraries = (
        system,
        system / "blas",
        system / "lapack",
        tree / "lib" / system.name,
        usr / "lib",
    )
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONHOME": str(usr),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
    }
    return Interpreter(usr / "bin/python3", environment)
