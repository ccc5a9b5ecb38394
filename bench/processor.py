"""How much processor time the programs of a cluster take, and this process, between two moments."""

from __future__ import annotations

from pathlib import Path

import psutil

OWN = "controllers"
"""What this process is called: the controllers under test run in it."""


class Processor:
    """Counts from when it is made."""

    def __init__(self, folder: Path) -> None:
        """Nothing is counted yet.

        Args:
            folder: of the lab; every program of its control plane names it in its arguments.
        """
        self._folder = str(folder)
        self._before = self._now()

    def taken(self) -> dict[str, float]:
        """Seconds by program since it was made, or since this was last asked."""
        now = self._now()
        taken = {name: spent - self._before.get(name, 0.0) for name, spent in now.items()}
        self._before = now
        return taken

    def _now(self) -> dict[str, float]:
        found = {OWN: _spent(psutil.Process())}
        for process in psutil.process_iter(["name", "cmdline"]):
            if any(self._folder in word for word in process.info["cmdline"] or ()):
                name = process.info["name"]
                found[name] = found.get(name, 0.0) + _spent(process)
        return found


def _spent(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
