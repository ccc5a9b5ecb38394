"""Errors that end the command with one message and an exit code.

`gpu-clusters explain` says more about each by its code, which `core/codes` lists.
"""

from rich.console import Console
from rich.text import Text

from gpuclusters.core.errors import code_of


class CommandError(Exception):
    exit_code = 1
    code = "command.failed"
    """Its code if it has none of its own, and nothing beneath it has one."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self._code = code

    @property
    def error_id(self) -> str:
        """Its own code, else that of what failed beneath and is only passed on."""
        return self._code or code_of(self.__cause__) or self.code


class UsageError(CommandError):
    """The command was called in a way that cannot work; nothing was started. Exit code 2."""

    exit_code = 2
    code = "command.usage"


class RunError(CommandError):
    """Something failed while at work; the message says what is left. Exit code 1."""


def wrong_option(message: str) -> UsageError:
    """An option has a value that it does not take, or does not fit another option or the cluster type."""
    return UsageError(message, "command.wrong-option")


def tell(word: str, style: str, text: str) -> None:
    """A line on standard error, whose first word has a colour on a terminal."""
    said = Text.assemble((f"{word}:", style), f" {text}")
    Console(stderr=True, highlight=False).print(said, soft_wrap=True)
