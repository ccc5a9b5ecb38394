"""`python -m engine VERB`: the embedded engine as a command, like `pulumi VERB`."""

from __future__ import annotations

import sys

from engine.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
