"""What can go wrong when reaching out, in our words: who, what was tried, what to do next.

Every foreign exception is translated into one of these and chained. They carry plain text only,
survive pickling, and never hold a secret.
"""

from collections.abc import Mapping
from typing import Any


class AdapterError(Exception):
    """Something outside failed.

    `where` is the host or API server as the user knows it, `tried` what was being done, like "write
    /etc/cdi/pgpu.json", `problem` what went wrong, and `remedy` what to do next.
    """

    error_id = "remote.failed"

    def __init_subclass__(cls, code: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.error_id = code or cls.error_id

    def __init__(self, where: str, tried: str, problem: str, remedy: str) -> None:
        super().__init__(where, tried, problem, remedy)
        self.where, self.tried, self.problem, self.remedy = where, tried, problem, remedy

    def __str__(self) -> str:
        return f"{self.where}: could not {self.tried}: {self.problem}; {self.remedy}"


class UnreachableError(AdapterError, code="remote.unreachable"):
    """No connection, or it broke."""


class HostKeyMismatchError(AdapterError, code="remote.host-key-mismatch"):
    """The host shows another key than the one pinned for it."""


class DeniedError(AdapterError, code="remote.denied"):
    """Reached, but not allowed: login, sudo, file permission, RBAC."""


class CommandFailedError(AdapterError, code="remote.command-failed"):
    """A command ended with an exit status that we do not expect."""


class CommandTimeoutError(AdapterError, code="remote.command-timeout"):
    """A command did not end in time."""


class BusyError(AdapterError, code="remote.busy"):
    """Somebody else holds or manages it."""


class DiskFullError(AdapterError, code="remote.disk-full"):
    """No space, or no inode, left on the host."""


class InvalidAnswerError(AdapterError, code="remote.invalid-answer"):
    """The other side answered something that we cannot read."""


class NoCredentialsError(AdapterError, code="remote.no-credentials"):
    """We were given nothing to log in with."""


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


_SPACE = "free some space on the host and run again"
_SUDO = "let the user run sudo without password (NOPASSWD in /etc/sudoers.d)"
# What the system says, the error it is, and what to do. The first that fits.
_KNOWN: Mapping[str, tuple[type[AdapterError], str]] = {
    "No space left on device": (DiskFullError, _SPACE),
    "Disk quota exceeded": (DiskFullError, _SPACE),
    "Read-only file system": (DeniedError, "look at the host's disk: `dmesg`, then remount it"),
    "a password is required": (DeniedError, _SUDO),
    "is not in the sudoers file": (DeniedError, _SUDO),
    "Permission denied": (DeniedError, "check who may change it, and SELinux or AppArmor"),
    "Operation not permitted": (DeniedError, "check who may change it, and `lsattr`"),
    "invalid user": (CommandFailedError, "create the user on the host or name another owner"),
    "invalid group": (CommandFailedError, "create the group on the host or name another owner"),
}


def error_of(target: str, tried: str, status: int | None, words: str) -> AdapterError:
    """The error for a command that failed, from its exit status and its last words."""
    problem = f"exit status {status}{f': {words}' if words else ''}"
    verb = "install the command" if status == 127 else "run the command by hand"
    other = (CommandFailedError, f"{verb} on the host")
    kind, remedy = next((known for sign, known in _KNOWN.items() if sign in words), other)
    return kind(target, tried, problem, remedy)
