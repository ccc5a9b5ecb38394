"""Where things lie in the folder of the stand-in.

<folder>/operator.json    whose nodes it looks after; written by whoever starts it
<folder>/ready.json       written when it looks after them
<folder>/process.json     pid and start time
<folder>/state.json       what hosts remember of operands: installed toolkits, drivers, MIG layouts
<folder>/faults.json      injected faults
<folder>/server.log
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.server_process import ServerFolder


@dataclass(frozen=True, slots=True)
class OperatorFolder(ServerFolder):
    """The paths of one stand-in."""

    @property
    def specs(self) -> Path:
        """Whose nodes it looks after."""
        return self.path / "operator.json"

    @property
    def state(self) -> Path:
        """What hosts remember of operands."""
        return self.path / "state.json"

    @property
    def faults(self) -> Path:
        """Injected faults."""
        return self.path / "faults.json"
