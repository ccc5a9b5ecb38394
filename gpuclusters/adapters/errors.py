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


class HostKeyMismatchError(AdapterError):
    """The host shows another key than the one pinned for it."""


class DeniedError(AdapterError):
    """Reached, but not allowed: login, sudo, file permission, RBAC."""


class CommandFailedError(AdapterError):
    """A command ended with an exit status that we do not expect."""


class CommandTimeoutError(AdapterError):
    """A command did not end in time."""


class BusyError(AdapterError):
    """Somebody else holds or manages it."""


class DiskFullError(AdapterError):
    """No space, or no inode, left on the host."""


class InvalidAnswerError(AdapterError):
    """The other side answered something that we cannot read."""


class NoCredentialsError(AdapterError):
    """We were given nothing to log in with."""
