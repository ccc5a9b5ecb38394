"""What the service VM says of itself when its host asks over SSH. Pure.

The host alone reaches the VM, with a key that was made there; `fmpm -v` is of no help, since it prints the
version of the client. So this is the one place where the version of the fabric manager is read from what is
installed. The console says it too, but only what was installed at the last start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SERVICE = "nvidia-fabricmanager.service"
LOG = "/var/log/fabricmanager.log"
LOG_LINES = 3

COMMAND = (
    f"nv-fabricmanager --version; systemctl is-active {SERVICE}; sudo -n tail -n {LOG_LINES} {LOG}"
)
"""Run by the VM's only account. Each part may fail and leave its answer out."""

# systemctl(1), is-active: the unit's ActiveState; `unknown` is of older versions.
_STATES = frozenset(
    {
        "active",
        "reloading",
        "inactive",
        "failed",
        "activating",
        "deactivating",
        "maintenance",
        "unknown",
    }
)
# "Fabric Manager version is : 595.58.03"
_VERSION = re.compile(r"version is *: *([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Guest:
    """The fabric manager as its own VM sees it."""

    problem: str = ""
    """Why the VM could not be asked; empty if it answered."""
    version: str = ""
    """What is installed; empty if nothing is, or nobody answered."""
    service: str = ""
    """ActiveState of its unit."""
    log: tuple[str, ...] = ()
    """The last lines of its log."""

    @property
    def answered(self) -> bool:
        """Whether the VM let its host in and said something."""
        return not self.problem


def parsed(output: str) -> Guest:
    """The answer to `COMMAND`."""
    version, service, log = "", "", list[str]()
    for line in output.splitlines():
        text = line.strip()
        if service:
            log.append(text)
        elif text in _STATES:
            service = text
        elif found := _VERSION.search(text):
            version = found[1]
    if not service:
        return Guest("its shell answers, but systemctl says nothing of the fabric manager", version)
    return Guest("", version, service, tuple(line for line in log if line)[-LOG_LINES:])
