"""`python -m lab.kubelet serve FOLDER`: play in the foreground (what `start` runs)."""

import sys
from pathlib import Path

from lab.kubelet.model import KubeletError
from lab.kubelet.server import serve

if __name__ == "__main__":
    if len(sys.argv) != len(("lab.kubelet", "serve", "FOLDER")) or sys.argv[1] != "serve":
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        serve(Path(sys.argv[2]))
    except KubeletError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
