"""`python -m gpuclusters.errors`: write docs/errors.md and the list of ids anew."""

import sys

from gpuclusters.errors.page import write

if __name__ == "__main__":
    try:
        write()
    except ValueError as error:
        sys.exit(f"error: {error}")
