"""Programs of NVIDIA's container toolkit, built from pinned sources.

They load the driver's library by its name when they run, which Go can only do with a compiler of C. Where
there is none, the toolkit's step on a node is played, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lab.tools.errors import ToolError
from lab.tools.go_program import GoProgram
from lab.tools.report import Report

VERSION: Final = "1.20.1"
"""The newest of the release that GPU Operator v26.7 brings."""
SOURCES: Final = Path(__file__).parent / "toolkit_sources"
"""One folder with go.mod and go.sum for each version that is pinned."""
NAMES: Final = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime")
_MODULE = "github.com/NVIDIA/nvidia-container-toolkit"


def program(name: str, version: str = VERSION) -> GoProgram:
    """One of them."""
    return GoProgram(
        name=f"{name}-{version}",
        source=SOURCES / version,
        package=f"{_MODULE}/cmd/{name}",
        linked=f"{_MODULE}/internal/info.version={version}",
        cgo=True,
    )


def ensure(report: Report) -> Mapping[str, Path]:
    """All of them by name, out of the cache or built.

    Raises:
        ToolError: they cannot be had here; one sentence that says why.
    """
    return {name: program(name).built(report) for name in NAMES}


def there() -> Mapping[str, Path]:
    """All of them by name, out of the cache alone.

    Raises:
        ToolError: they were not built.
    """
    found = {name: program(name).place for name in NAMES}
    missing = [name for name, place in found.items() if not place.exists()]
    if missing:
        raise ToolError(f"{', '.join(missing)} could not be built")
    return found
