"""The one exception whose text is written for the person at the terminal."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command, the same as Pulumi's own (stable since 2026)."""

    OK = 0
    FAILED = 1
    CONFIGURATION = 2
    NO_STACK = 6
    CHANGES = 7
    CANCELLED = 8
    INTERNAL = 255


class UserError(Exception):
    """Something the user can act on: printed as one sentence, never with a traceback.

    What reads or writes for the user raises it: arguments, files, states, passphrases.
    """

    def __init__(self, message: str, exit_code: int = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = int(exit_code)
