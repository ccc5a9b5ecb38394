"""What a fabric manager answers (`fmReturn_t`), what it means, what is done about it.

Source: nv_fm_types.h and the Fabric Manager User Guide; NVIDIA/Fabric-Manager-Client for the exit
status of `fmpm`, which is the lowest byte of the code; ubicloud for -17 and -18 being success.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from gpuclusters.compat.dated_table import Source


class Action(StrEnum):
    """What a step does when it gets a code."""

    SUCCEED = "succeed"
    """What was asked for is the case already."""
    RETRY = "retry"
    """Not ready yet: retry with backoff until a deadline."""
    LOOK = "look"
    """May mean that it is the case already: the table tells, else it fails."""
    FAIL = "fail"
    QUARANTINE = "quarantine"
    """FAIL, and the GPUs are given to nobody before somebody has looked at them."""


@dataclass(frozen=True, slots=True)
class Code:
    """One code."""

    meaning: str
    remedy: str
    action: Action = Action.FAIL


_REFRESH = "refresh and try again"
_LOG = "read the fabric manager's log in the service VM"
_WAIT = "wait until the fabric manager has initialised"
_START = "start the service VM, and let FM_CMD_BIND_INTERFACE be reachable"
_RESET = "quarantine the GPUs of this partition and reset them"
_UNSUPPORTED = "list unsupported partitions with `fmpm --list-unsupported-partitions`"

SOURCES = (
    Source(
        at="nv_fm_types.h of nvidia-fabricmanager-dev; Fabric Manager User Guide",
        release="as read",
        date=date(2026, 11, 20),
    ),
    Source(
        at="github.com/NVIDIA/Fabric-Manager-Client: exit status of fmpm",
        release="main as read",
        date=date(2026, 11, 20),
    ),
)
"""Of the rows below."""

CODES: Mapping[int, Code] = {
    -1: Code("bad parameter", "check that fmpm and the fabric manager have the same version"),
    -2: Code("generic error", _LOG),
    -3: Code("not supported", "set FABRIC_MODE=1 (shared NVSwitch) and restart the fabric manager"),
    -4: Code("not initialised", "restart the fabric manager and read its log", Action.LOOK),
    -5: Code("timeout", _LOG, Action.RETRY),
    -6: Code("version mismatch", "install the fmpm that belongs to the fabric manager's version"),
    -7: Code("partition in use", "stop the VM that holds one of its GPUs", Action.LOOK),
    -8: Code("not configured", f"{_WAIT}; else read its log", Action.RETRY),
    -9: Code("no connection", _START, Action.RETRY),
    -10: Code("NVLink error", _RESET, Action.QUARANTINE),
    -11: Code("bad resource", _UNSUPPORTED),
    -12: Code("resource in use", "stop the VM that holds one of its GPUs"),
    -13: Code("resource not in use", _REFRESH, Action.LOOK),
    -14: Code("resource exhausted", "wait for other partition changes to finish", Action.RETRY),
    -15: Code("not ready", _WAIT, Action.RETRY),
    -16: Code("partition exists", _REFRESH, Action.LOOK),
    -17: Code("partition id in use", _REFRESH, Action.SUCCEED),
    -18: Code("partition id not in use", _REFRESH, Action.SUCCEED),
    -19: Code("partition name in use", _REFRESH),
    -20: Code("partition name not in use", _REFRESH),
    -21: Code("partition id and name do not match", _REFRESH),
    -22: Code("not ready", _WAIT, Action.RETRY),
    -23: Code("resource used in this partition", _REFRESH, Action.LOOK),
    -24: Code("resource used in another partition", "deactivate the partition that has its GPUs"),
    -25: Code("miswired trunk links", "check the cabling between the baseboards"),
    -26: Code("too few trunk links", "check the cabling between the baseboards"),
    -27: Code("NVSwitches are missing", "pass every NVSwitch of the board to the service VM"),
    -28: Code("network configuration error", _LOG),
    -29: Code("route programming error", "reset the NVSwitches while no partition is active"),
}

FABRIC_MANAGER_PORT = 6666
"""Where its API listens; fmpm has no option for another one."""
ALREADY_ACTIVE = -17
ALREADY_INACTIVE = -18
NOT_CONFIGURED = -8
NO_CONNECTION = -9
PASSING_CODES = frozenset(n for n, code in CODES.items() if code.action is Action.RETRY)
"""Not ready yet; -9 is what clients see while it restarts."""

_ONLY_FOR = {ALREADY_ACTIVE: "activate", ALREADY_INACTIVE: "deactivate", -4: "deactivate"}


def action(code: int, verb: str) -> Action:
    """What a step with the verb "activate" or "deactivate" does about an fmReturn code."""
    if _ONLY_FOR.get(code, verb) != verb:
        return Action.FAIL
    return CODES[code].action if code in CODES else Action.FAIL


def id_of(code: int) -> str:
    """The code of an answer of the fabric manager: `fabric.answer-8` for -8."""
    return f"fabric.answer{code if code in CODES else '-unknown'}"


class FabricError(Exception):
    """A fabric manager call on a host's board failed, with an fmReturn and the client's last words."""

    def __init__(self, target: str, action: str, code: int, output: str) -> None:
        super().__init__(target, action, code, output)
        self.error_id = id_of(code)
        self.target, self.action, self.code, self.output = target, action, code, output

    def __str__(self) -> str:
        code = CODES.get(self.code, Code("unknown code", "read the fabric manager's log"))
        said = f" ({self.output})" if self.output else ""
        return (
            f"{self.target}: could not {self.action}: fabric manager answered {self.code}, "
            f"{code.meaning}{said}; {code.remedy}"
        )


def code_of_exit(status: int) -> int:
    """The fmReturn code behind fmpm's exit status, which is its lowest byte."""
    return status - 256 if status > 127 else -status
