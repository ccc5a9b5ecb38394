"""A simulated machine that restarts, waited for until it lets in again."""

from contextlib import suppress

import asyncssh

from tests.fixtures.hosts import SimulatedHost


def restart(host: SimulatedHost) -> None:
    """Restart the machine; done when it has come up once more and lets in.

    Whether the order is answered does not count: a machine goes down a moment after it, and one that is busy
    takes the answer along.
    """
    before = host.boot_id()
    with suppress(OSError, asyncssh.Error):
        host.sudo("reboot")
    host.wait_for_boot(before)


def boots(host: SimulatedHost) -> int:
    """How often the machine has come up."""
    return sum(entry["action"] == "up" for entry in host.journal("power"))
