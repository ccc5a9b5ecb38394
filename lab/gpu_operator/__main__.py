"""`python -m lab.gpu_operator`: the stand-in by itself.

serve FOLDER                        play in the foreground (what `start` runs)
fault FOLDER KIND [KEY=VALUE…]      inject a fault; kind `none` takes all away
"""

import sys
from pathlib import Path

from lab.gpu_operator.faults import BOOK


def serve(folder: Path) -> None:
    # Takes half a second to import, which `fault` need not wait for.
    from lab.gpu_operator.server import serve as begin

    begin(folder)


def main(arguments: list[str]) -> int:
    return BOOK.command(arguments, __doc__ or "", serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
