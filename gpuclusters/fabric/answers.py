"""What a fabric manager answers (`fmReturn_t`), what it means, what is done about it.

Source: nv_fm_types.h and the Fabric Manager User Guide; NVIDIA/Fabric-Manager-Client for the exit
status of `fmpm`, which is the lowest byte of the code; ubicloud for -17 and -18 being success.
"""

from collections.abc import Mapping
from enum import StrEnum

from gpuclusters.compat.dated_table import Row, Table


class Action(StrEnum):
    """What a step does when it gets a code; the table says what each means."""

    SUCCEED = "succeed"
    RETRY = "retry"
    LOOK = "look"
    FAIL = "fail"
    QUARANTINE = "quarantine"


class Code(Row):
    meaning: str
    remedy: str
    action: Action = Action.FAIL


class _Answers(Table):
    codes: Mapping[int, Code]


CODES = _Answers.packaged("fabric_answers").codes
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
        unknown = Code(meaning="unknown code", remedy="read the fabric manager's log")
        code = CODES.get(self.code, unknown)
        said = f" ({self.output})" if self.output else ""
        return (
            f"{self.target}: could not {self.action}: fabric manager answered {self.code}, "
            f"{code.meaning}{said}; {code.remedy}"
        )


def code_of_exit(status: int) -> int:
    """The fmReturn code behind fmpm's exit status, which is its lowest byte."""
    return status - 256 if status > 127 else -status
