"""`python -m lab.kubelet serve FOLDER | stop FOLDER | status FOLDER`: the kubelets by themselves."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.kubelet.model import KubeletError
from lab.kubelet.process import status, stop

_USAGE = "usage: python -m lab.kubelet serve|stop|status FOLDER"


def main(arguments: list[str]) -> int:
    """Run one command; the exit code."""
    match arguments:
        case ["serve", folder]:
            # Takes half a second to import, which the other two need not wait for.
            from lab.kubelet.server import serve

            serve(Path(folder))
        case ["stop", folder]:
            stop(Path(folder))
        case ["status", folder]:
            found = status(Path(folder))
            print(
                found.detail + (f" (process {found.pid}, port {found.port})" if found.pid else "")
            )
            for name, path in found.nodes.items():
                print(f"{name}  {path}")
            return 0 if found.running else 3
        case _:
            print(_USAGE, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KubeletError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
