"""What can go wrong when reaching out, in our words: who, what was tried, what to do next.

Every foreign exception is translated into one of these and chained. They carry plain text only,
survive pickling, and never hold a secret.
"""

from __future__ import annotations

from collections.abc import Mapping


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


# What the system says, the error it is, and what to do. The first that fits.
_KNOWN: Mapping[str, tuple[type[AdapterError], str]] = {
    "No space left on device": (DiskFullError, "free some space on the host and run again"),
    "Disk quota exceeded": (DiskFullError, "free some space on the host and run again"),
    "Read-only file system": (DeniedError, "look at the host's disk: `dmesg`, then remount it"),
    "a password is required": (
        DeniedError,
        "let the user run sudo without password (NOPASSWD in /etc/sudoers.d)",
    ),
    "is not in the sudoers file": (
        DeniedError,
        "let the user run sudo without password (NOPASSWD in /etc/sudoers.d)",
    ),
    "Permission denied": (DeniedError, "check who may change it, and SELinux or AppArmor"),
    "Operation not permitted": (DeniedError, "check who may change it, and `lsattr`"),
    "invalid user": (CommandFailedError, "create the user on the host or name another owner"),
    "invalid group": (CommandFailedError, "create the group on the host or name another owner"),
}


def error_of(target: str, tried: str, status: int | None, words: str) -> AdapterError:
    """The error for a command that failed, from its exit status and its last words."""
    said = f": {words}" if words else ""
    for sign, (kind, remedy) in _KNOWN.items():
        if sign in words:
            return kind(target, tried, f"exit status {status}{said}", remedy)
    remedy = "run the command by hand on the host"
    if status == 127:
        remedy = "install the command on the host"
    return CommandFailedError(target, tried, f"exit status {status}{said}", remedy)
