"""`python -m lab.usernetes`: the stand-in by itself.

serve FOLDER                        tell in the foreground (what `start` runs)
fault FOLDER KIND [KEY=VALUE…]      inject a fault; kind `none` takes all away
"""

import sys
from pathlib import Path

from lab.usernetes.faults import BOOK


def serve(folder: Path) -> None:
    # Takes half a second to import, which `fault` need not wait for.
    from lab.usernetes.server import serve as begin

    begin(folder)


def main(arguments: list[str]) -> int:
    return BOOK.command(arguments, __doc__ or "", serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
