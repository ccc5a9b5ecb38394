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
    """No connection, or it broke.

    Do: see that the machine is on, check `address` and `port`, and run again; what was done stays done.
    """


class HostKeyMismatchError(AdapterError):
    """The host shows another key than the one pinned for it.

    Do: compare the fingerprint on the machine's console; write its key into the stack file only if
    they are the same.
    """


class DeniedError(AdapterError):
    """Reached, but not allowed: login, sudo, file permission, RBAC.

    Do: give the account what the message names; docs/security.md lists what accounts need.
    """


class CommandFailedError(AdapterError):
    """A command ended with an exit status that we do not expect.

    Do: read its last words in the message, and run it by hand on that machine.
    """


class CommandTimeoutError(AdapterError):
    """A command did not end in time.

    Do: look what the machine is busy with; the command may still run there.
    """


class BusyError(AdapterError):
    """Somebody else holds or manages it.

    Do: wait for them or end them, then run again.
    """


class DiskFullError(AdapterError):
    """No space, or no inode, left on the host.

    Do: make room on the machine; the old file is untouched.
    """


class InvalidAnswerError(AdapterError):
    """The other side answered something that we cannot read.

    Do: check versions on both sides; the message has what was answered.
    """


class NoCredentialsError(AdapterError):
    """We were given nothing to log in with.

    Do: load a key into ssh-agent, or set `ssh-private-key` as a secret of the stack.
    """
