"""Starts commands in views: the server's side of `view.py`."""

import array
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.hosts import view
from lab.hosts.model import USER, HostsError
from lab.hosts.tree import OPERATOR_ID, Mounts

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FAILED_TO_START = 254


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run on a host: what, as whom, where, and which folders have a full disk."""

    argv: Sequence[str]
    uid: int = OPERATOR_ID
    cwd: str = f"/home/{USER}"
    environment: Mapping[str, str] | None = None
    full: Sequence[str] = ()


def environment(uid: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    user, home = ("root", "/root") if uid == 0 else (USER, f"/home/{USER}")
    values = {"PATH": _PATH, "HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/sh"}
    # The stand-ins are Perl, which would complain about a locale that is not there.
    return {**values, "LANG": "C.UTF-8", "PERL_BADLANG": "0", **(extra or {})}


class Running:
    """A command that runs in a view; made in a running loop, which hears of its end whoever waits."""

    def __init__(self, status: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._status = status
        self._writer = writer
        self._pid: int | None = None
        self._killed = False
        self.has_ended = False
        self.problem: str | None = None
        self._end = asyncio.create_task(self._read())

    async def wait(self) -> int:
        """The command's exit code; 128 + n when signal n ended it."""
        return await asyncio.shield(self._end)

    async def _read(self) -> int:
        exit_code = _FAILED_TO_START
        decoder = json.JSONDecoder()
        text = ""
        while chunk := await self._status.read(4096):
            text += chunk.decode()
            while text:
                message, end = decoder.raw_decode(text)
                text = text[end:]
                self._pid = message.get("pid", self._pid)
                if self._killed:
                    self.kill()
                self.problem = message.get("error", self.problem)
                exit_code = message.get("exit", exit_code)
        # End of the stream: every process that could hold it is gone, so there is none to kill.
        self._pid = None
        self.has_ended = True
        self._writer.close()
        return exit_code

    def kill(self) -> None:
        """End the command and everything that it started; one that just starts, as soon as it has."""
        self._killed = True
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)


class Launcher:
    """The process that makes views; one for all hosts of a server."""

    def __init__(self, *, user_namespace: bool) -> None:
        self._user_namespace = user_namespace
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", view.__file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()

    @property
    def switches_user(self) -> bool:
        """Whether commands run as the operator unless they use sudo.

        Without root on the machine only one user can be mapped into the view, so that there the
        operator is root; a forgotten `sudo` goes unnoticed.
        """
        return not self._user_namespace

    async def start(
        self,
        root: Path,
        name: str,
        mounts: Mounts,
        command: Command,
        streams: Sequence[int],
        *,
        network: int | None = None,
    ) -> Running:
        """Start a command in a host's root folder on the given input, output and error.

        `network`: the namespace that it runs in, opened; None: the machine's own.
        """
        uid = command.uid if self.switches_user else 0
        request: dict[str, Any] = {
            "root": str(root),
            "hostname": name,
            "read_only": mounts.read_only,
            "devices": mounts.devices,
            "proc": mounts.proc,
            "full": list(command.full),
            "argv": list(command.argv),
            "cwd": command.cwd,
            "env": dict(command.environment or environment(uid)),
            "uid": uid,
            "gid": uid,
            "switch_user": self.switches_user,
            "user_namespace": self._user_namespace,
        }
        memory = os.memfd_create("request")
        ours, theirs = socket.socketpair()
        try:
            os.write(memory, json.dumps(request).encode())
            extra = [] if network is None else [network]
            descriptors = array.array("i", [memory, *streams, theirs.fileno(), *extra])
            self._control.sendmsg([b"start"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        finally:
            os.close(memory)
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        return Running(reader, writer)

    def close(self) -> None:
        """End the process, and with it all commands."""
        self._control.close()
        self._process.kill()
        self._process.wait()


def check_possible() -> bool:
    """Whether views need a user namespace here; `HostsError` where there can be no views at all."""
    if not sys.platform.startswith("linux"):
        raise HostsError(
            f"simulated hosts need Linux (this is {sys.platform}): each runs its commands in "
            "namespaces of its own"
        )
    if os.geteuid() == 0 and _can_unshare([]):
        return False
    if _can_unshare(["--user", "--map-root-user"]):
        return True
    raise HostsError(
        "simulated hosts need Linux with root or with user namespaces, and this machine allows "
        "neither; run as root, or allow user namespaces (sysctl user.max_user_namespaces, and "
        "kernel.apparmor_restrict_unprivileged_userns=0 where it exists)"
    )


def _can_unshare(flags: list[str]) -> bool:
    command = ["unshare", *flags, "--mount", "--pid", "--fork", "--mount-proc", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
