"""`python -m lab.control_plane start|stop|status FOLDER [NODE...]`: the control plane by itself."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from lab.control_plane import ControlPlaneError, NodeSpec, start, status, stop
from lab.tools import ToolError

_USAGE = "usage: python -m lab.control_plane start|stop|status FOLDER [NODE...]"


def main(arguments: list[str]) -> int:
    """Run one command; the exit code."""
    match arguments:
        case ["start", folder, *nodes]:
            plane = start(Path(folder), [NodeSpec(name) for name in nodes])
            print(f"export KUBECONFIG={plane.kubeconfig}  # {plane.url}")
        case ["stop", folder]:
            stop(Path(folder))
        case ["status", folder]:
            for process in status(Path(folder)):
                state = f"pid {process.pid}" if process.running else "not running"
                up = f"{time.time() - process.since:.0f}s" if process.running else "-"
                mebibytes = process.rss_bytes >> 20
                print(
                    f"{process.name:24} {state:16} port {process.port:5} up {up:>6} "
                    f"{mebibytes:4} MiB  {process.log}"
                )
        case _:
            print(_USAGE, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ControlPlaneError, ToolError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
