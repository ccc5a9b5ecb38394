"""What can go wrong when reaching out, in our words: who, what was tried, what to do next.

Every foreign exception is translated into one of these and chained. They carry plain text only,
survive pickling, and never hold a secret.
"""

from __future__ import annotations


class AdapterError(Exception):
    """Something outside failed.

    Attributes:
        where: host with address and port, or API server, as the user knows it.
        tried: what was being done, like "write /etc/cdi/pgpu.json".
        problem: what went wrong.
        remedy: what to do next.
    """

    error_id = "remote.failed"

    def __init__(self, where: str, tried: str, problem: str, remedy: str) -> None:
        super().__init__(where, tried, problem, remedy)
        self.where = where
        self.tried = tried
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.where}: could not {self.tried}: {self.problem}; {self.remedy}"


class UnreachableError(AdapterError):
    """No connection, or it broke."""

    error_id = "remote.unreachable"


class HostKeyMismatchError(AdapterError):
    """The host shows another key than the one pinned for it."""

    error_id = "remote.host-key-mismatch"


class DeniedError(AdapterError):
    """Reached, but not allowed: login, sudo, file permission, RBAC."""

    error_id = "remote.denied"


class CommandFailedError(AdapterError):
    """A command ended with an exit status that we do not expect."""

    error_id = "remote.command-failed"


class CommandTimeoutError(AdapterError):
    """A command did not end in time."""

    error_id = "remote.command-timeout"


class BusyError(AdapterError):
    """Somebody else holds or manages it."""

    error_id = "remote.busy"


class DiskFullError(AdapterError):
    """No space, or no inode, left on the host."""

    error_id = "remote.disk-full"


class InvalidAnswerError(AdapterError):
    """The other side answered something that we cannot read."""

    error_id = "remote.invalid-answer"


class NoCredentialsError(AdapterError):
    """We were given nothing to log in with."""

    error_id = "remote.no-credentials"


def code_of(error: BaseException | None) -> str:
    """The code of an error, listed in `core/codes`; empty if it is none of ours."""
    code = getattr(error, "error_id", "")
    return code if isinstance(code, str) else ""


def labelled(error: BaseException) -> str:
    """The text of an error with its code, which ends its first line."""
    return with_code(str(error), code_of(error))


def with_code(text: str, code: str) -> str:
    """A message with its code at the end of its first line."""
    if not code:
        return text
    first, newline, rest = text.partition("\n")
    return f"{first} [{code}]{newline}{rest}"
