"""`python -m engine VERB`: the embedded engine as a command, like `pulumi VERB`."""

import sys

from engine.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
