"""The command of a stand-in by itself: serve, stop, status, fault."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.server_process import ServerStatus
from lab.stand_in_faults import FaultBook


@dataclass(frozen=True)
class Command:
    """`python -m MODULE VERB FOLDER …`."""

    usage: str
    serve: Callable[[Path], None]
    """In the foreground; what `start` runs."""
    stop: Callable[[Path], None]
    status: Callable[[Path], ServerStatus]
    faults: FaultBook[Any]

    def run(self, arguments: list[str]) -> int:
        """One call; gives the exit code. What goes wrong is one line."""
        try:
            return self._run(arguments)
        except self.faults.error as error:
            print(error, file=sys.stderr)
            return 1

    def _run(self, arguments: list[str]) -> int:
        match arguments:
            case ["serve", folder]:
                self.serve(Path(folder))
            case ["stop", folder]:
                self.stop(Path(folder))
            case ["status", folder]:
                found = self.status(Path(folder))
                print(found.detail + (f" (process {found.pid})" if found.pid else ""))
                return 0 if found.running else 3
            case ["fault", folder, "none"]:
                self.faults.clear(Path(folder))
            case ["fault", folder, kind, *pairs]:
                values = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
                self.faults.inject(Path(folder), self.faults.parse(kind, dict(values)))
            case _:
                print(self.usage, file=sys.stderr)
                return 2
        return 0
