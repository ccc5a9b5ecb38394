"""`python -m lab.usernetes`: the stand-in by itself.

serve FOLDER                        tell in the foreground (what `start` runs)
stop FOLDER
status FOLDER
fault FOLDER KIND [KEY=VALUE…]      inject a fault; kind `none` takes all away
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab.usernetes import faults
from lab.usernetes.model import UsernetesError
from lab.usernetes.process import status, stop


def main(arguments: list[str]) -> int:
    """Run one command; the exit code."""
    match arguments:
        case ["serve", folder]:
            # Takes half a second to import, which the others need not wait for.
            from lab.usernetes.server import serve

            serve(Path(folder))
        case ["stop", folder]:
            stop(Path(folder))
        case ["status", folder]:
            found = status(Path(folder))
            print(found.detail + (f" (process {found.pid})" if found.pid else ""))
            return 0 if found.running else 3
        case ["fault", folder, "none"]:
            faults.clear(Path(folder))
        case ["fault", folder, kind, *pairs]:
            values = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
            faults.inject(Path(folder), faults.parse(kind, dict(values)))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UsernetesError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
