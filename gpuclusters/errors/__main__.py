"""`python -m gpuclusters.errors`: write docs/errors.md anew; with `release`, fix the ids of this version."""

import sys

from gpuclusters.errors.page import release, write

if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["release"]:
            release()
        elif sys.argv[1:]:
            sys.exit("usage: python -m gpuclusters.errors [release]")
        write()
    except ValueError as error:
        sys.exit(f"error: {error}")
