"""`python -m lab.hosts serve|exec|status|stop|fault`: the hosts' own command line."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.hosts.folder import HostsFolder
from lab.hosts.model import HostsError
from lab.hosts.server import serve


def main(arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    try:
        if arguments[:1] == ["serve"] and len(arguments) == 2:
            serve(HostsFolder(Path(arguments[1])))
            return 0
    except HostsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
