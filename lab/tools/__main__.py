"""`python -m lab.tools [NAME...]`: get the tools of the lab, all by default, and print their paths."""

from __future__ import annotations

import sys

from lab.tools import ToolError, ensure
from lab.tools.catalogue import TOOLS

if __name__ == "__main__":
    try:
        for name, path in ensure(sys.argv[1:] or list(TOOLS)).items():
            print(f"{name}\t{path}")
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
