"""systemd units of a host over SSH."""

from __future__ import annotations

from gpuclusters.adapters.errors import InvalidAnswerError
from gpuclusters.adapters.scripts import run_script
from gpuclusters.adapters.ssh import SshHost
from gpuclusters.domain.host_unit import UnitState

START_SECONDS = 330.0
"""A unit may take as long as its own TimeoutStartSec, five minutes for those that are ours."""


class SshHostUnits:
    """`HostUnits` of one host; each call is one round trip."""

    def __init__(self, host: SshHost) -> None:
        self._host = host

    @property
    def place(self) -> str:
        """Name, address and port of the host."""
        return self._host.place

    def state(self, unit: str) -> UnitState:
        """What systemd says now."""
        tried = f"look at {unit}"
        done = run_script(self._host, "unit", ["state", unit], tried=tried, repeatable=True)
        words = done.stdout.decode(errors="replace").split()
        if len(words) < 2:
            raise InvalidAnswerError(
                self.place, tried, "systemctl gave no answer", "look whether systemd runs there"
            )
        return UnitState(words[0], words[1], stale=words[2:3] == ["yes"])

    def apply(self, unit: str, *, enabled: bool, active: bool, restart: bool) -> None:
        """Read unit files again, then enable and start or stop it."""
        wishes = ["enabled" if enabled else "disabled", "active" if active else "inactive"]
        run_script(
            self._host,
            "unit",
            ["apply", unit, *wishes, "restart" if restart else "keep"],
            tried=f"start {unit}" if active else f"set up {unit}",
            timeout_seconds=START_SECONDS,
        )

    def remove(self, unit: str) -> None:
        """Disable and stop it; absent is fine."""
        run_script(
            self._host,
            "unit",
            ["remove", unit],
            tried=f"stop {unit}",
            timeout_seconds=START_SECONDS,
        )
