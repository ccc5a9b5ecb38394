"""A simulated machine that restarts, waited for until it lets in again."""

import time
from contextlib import suppress

import asyncssh

from tests.fixtures.hosts import SimulatedHost

_PATIENCE_SECONDS = 120.0


def restart(host: SimulatedHost) -> None:
    """Restart the machine; done when it has come up once more and lets in.

    Whether the order is answered does not count: a machine goes down a moment after it, and one that is busy
    takes the answer along.
    """
    before = boots(host)
    with suppress(OSError, asyncssh.Error):
        host.sudo("reboot")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while boots(host) == before or not _lets_in(host):
        assert time.monotonic() < deadline, f"{host.name} did not come back"
        time.sleep(0.05)


def boots(host: SimulatedHost) -> int:
    """How often the machine has come up."""
    return sum(entry["action"] == "up" for entry in host.journal("power"))


def _lets_in(host: SimulatedHost) -> bool:
    with suppress(OSError, asyncssh.Error):
        return host.run("true").returncode == 0
    return False
