"""Where things lie in the folder of the stand-in.

<folder>/usernetes.json   whose nodes it tells of; written by whoever starts it
<folder>/ready.json       written when it tells of them
<folder>/process.json     pid and start time
<folder>/faults.json      injected faults
<folder>/server.log
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.server_process import ServerFolder


@dataclass(frozen=True, slots=True)
class UsernetesFolder(ServerFolder):
    """The paths of one stand-in."""

    @property
    def specs(self) -> Path:
        """Whose nodes it tells of."""
        return self.path / "usernetes.json"

    @property
    def faults(self) -> Path:
        """Injected faults."""
        return self.path / "faults.json"
