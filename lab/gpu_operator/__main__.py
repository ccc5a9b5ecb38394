"""`python -m lab.gpu_operator`: the stand-in by itself.

serve FOLDER                        play in the foreground (what `start` runs)
stop FOLDER
status FOLDER
fault FOLDER KIND [KEY=VALUE…]      inject a fault; kind `none` takes all away
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab.gpu_operator.faults import BOOK
from lab.gpu_operator.process import status, stop
from lab.stand_in_command import Command


def serve(folder: Path) -> None:
    """In the foreground."""
    # Takes half a second to import, which the others need not wait for.
    from lab.gpu_operator.server import serve as begin

    begin(folder)


main = Command(__doc__ or "", serve, stop, status, BOOK).run

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
