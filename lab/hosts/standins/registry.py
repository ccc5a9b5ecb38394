"""Which stand-ins there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab.hosts.standins import fmpm, fuser, systemctl
from lab.hosts.standins.call import Answer, Call

SUDO = "sudo"
"""Answered by the server itself, which alone can start another command."""

STAND_INS: Mapping[str, Callable[[Call], Answer]] = {
    "fmpm": fmpm.run,
    "fuser": fuser.run,
    "systemctl": systemctl.run,
}

NAMES = frozenset({*STAND_INS, SUDO})
