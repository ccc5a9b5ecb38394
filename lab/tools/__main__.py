"""`python -m lab.tools [NAME...]`: get tools of the lab and print their paths.

By default those that every lab needs; real nodes need more (`lab.tools.catalogue.FOR_NODES`).
"""

import sys

from lab.tools import ToolError, ensure
from lab.tools.catalogue import FOR_NODES, TOOLS

if __name__ == "__main__":
    try:
        for name, path in ensure(
            sys.argv[1:] or [name for name in TOOLS if name not in FOR_NODES]
        ).items():
            print(f"{name}\t{path}")
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
