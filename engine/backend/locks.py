"""One run at a time: a lock file per process, in the format of Pulumi's file backend."""

import contextlib
import datetime
import getpass
import json
import os
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from engine.backend.bucket import Bucket
from engine.backend.layout import StackReference
from engine.usererror import UserError


@dataclass(frozen=True)
class Lock:
    key: str
    pid: int
    username: str
    hostname: str
    timestamp: str

    @property
    def abandoned(self) -> bool:
        """Whether its process ran on this machine and is gone."""
        if self.hostname != socket.gethostname() or self.pid <= 0:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False  # it runs, as another user
        return False


def held(bucket: Bucket, stack: StackReference) -> list[Lock]:
    found = []
    for key in bucket.keys(stack.locks):
        try:
            content = json.loads(bucket.path(key).read_bytes())
        except FileNotFoundError:
            continue  # let go since the folder was listed
        except (OSError, ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            # Being written, or damaged: somebody holds it all the same.
            content = {}
        pid = content.get("pid")
        found.append(
            Lock(
                key=key,
                pid=pid if isinstance(pid, int) else 0,
                username=str(content.get("username", "unknown")),
                hostname=str(content.get("hostname", "unknown")),
                timestamp=str(content.get("timestamp", "unknown time")),
            )
        )
    return found


@contextlib.contextmanager
def locked(bucket: Bucket, stack: StackReference) -> Iterator[None]:
    _refuse(bucket, held(bucket, stack))
    key = f"{stack.locks}/{uuid.uuid4()}.json"
    content = {
        "pid": os.getpid(),
        "username": _user(),
        "hostname": socket.gethostname(),
        "timestamp": datetime.datetime.now().astimezone().isoformat(),
    }
    bucket.write(key, json.dumps(content, separators=(",", ":")).encode())
    try:
        # Two that start at the same time both see the other here: rather none than two.
        _refuse(bucket, [lock for lock in held(bucket, stack) if lock.key != key])
        yield
    finally:
        bucket.delete(key)


def release_all(bucket: Bucket, stack: StackReference) -> int:
    """Remove all locks of a stack, whoever holds them; gives their number."""
    locks = held(bucket, stack)
    for lock in locks:
        bucket.delete(lock.key)
    return len(locks)


def _refuse(bucket: Bucket, locks: list[Lock]) -> None:
    if not locks:
        return
    lines = [
        f"the stack is currently locked by {len(locks)} lock(s). Either wait for the other"
        " process(es) to end or delete the lock file with `pulumi cancel`"
        " (without the Pulumi CLI: `python -m engine cancel`)."
    ]
    for lock in locks:
        gone = "; that process is gone, so `cancel` is safe" if lock.abandoned else ""
        lines.append(
            f"  file://{bucket.path(lock.key)}: created by {lock.username}@{lock.hostname}"
            f" (pid {lock.pid}) at {lock.timestamp}{gone}"
        )
    raise UserError("\n".join(lines))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In containers the user often has no name.
        return str(os.getuid())
