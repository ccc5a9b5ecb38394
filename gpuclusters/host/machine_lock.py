"""One writer at a time on a machine: a lock there that names its holder and falls with its connection.

Who changes a machine holds `/run/gpu-clusters/writer` by a command in a session of the same SSH connection
(`host/scripts/hold_machine.sh`). When the process or the connection ends, that command's input ends, and so
does the lock; nothing has to be tidied up. What the process had started on the machine may go on for a while,
because sshd does not end a command whose client is gone. So each command that changes something runs under
a shared lock on `/run/gpu-clusters/work`, and the next writer waits for those too.

Reading takes no lock, and a step that has the machine keeps it for the next one for a few seconds: a lock
costs one command for a row of steps. Without root, the account's own folder stands for /run: then two
accounts do not see each other, and neither can change what is the other's.
"""

import asyncio
import contextlib
import getpass
import os
import shlex
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cache

import asyncssh

from gpuclusters.core import scripts
from gpuclusters.core.errors import BusyError, CommandTimeoutError, UnreachableError, error_of

PATIENCE_SECONDS = 15
"""For another writer, and again for what the last one left running. Longer than `LINGER_SECONDS`."""
LINGER_SECONDS = 3.0

Connect = Callable[[str], Awaitable[asyncssh.SSHClientConnection]]


class MachineBusyError(BusyError, code="remote.machine-busy"):
    """Another run changes the machine, or a command that one has left there still runs."""


class MachineLock:
    """The lock of one machine, for all steps of this process. Used within the event loop of SSH alone."""

    def __init__(self, target: str, timeout_seconds: float) -> None:
        self._target = target
        self._timeout = timeout_seconds
        self._guard = asyncio.Lock()
        self._users = 0
        self._holding: asyncssh.SSHClientProcess[str] | None = None
        self._folder = ""
        self._letting_go: asyncio.Task[None] | None = None

    @property
    def prefix(self) -> str:
        """What a root command that changes something begins with; empty where nobody holds the lock."""
        if not self._users or not self._folder.startswith("/run/"):
            return ""
        # Not inherited: what the command leaves in the background is no change under way.
        return f"flock --shared --close {self._folder}/work "

    async def enter(self, connect: Connect, tried: str) -> None:
        """One step more has the machine; `MachineBusyError` if somebody else keeps it."""
        if self._letting_go is not None:
            self._letting_go.cancel()
            self._letting_go = None
        self._users += 1
        try:
            await self.renew(connect, tried)
        except BaseException:
            await self.leave()
            raise

    async def leave(self) -> None:
        """One step less; the lock stays for a moment, for the next."""
        self._users -= 1
        if not self._users:
            self._letting_go = asyncio.create_task(self._let_go())

    async def renew(self, connect: Connect, tried: str) -> None:
        """Take the lock again if it fell with a connection, as when the machine was restarted."""
        async with self._guard:
            held = self._holding
            fallen = held is None or held.is_closing() or held.exit_status is not None
            if self._users and fallen:
                self._holding = await self._take(await connect(tried), tried)

    async def _let_go(self) -> None:
        await asyncio.sleep(LINGER_SECONDS)
        async with self._guard:
            if self._holding is not None:
                with contextlib.suppress(OSError):
                    self._holding.stdin.write_eof()
                self._holding = None

    async def _take(
        self, link: asyncssh.SSHClientConnection, tried: str
    ) -> asyncssh.SSHClientProcess[str]:
        script = command = shlex.join(["sh", "-c", _text(), "sh", _me(), str(PATIENCE_SECONDS)])
        # Exit status 1 is sudo's: the account may not, and changes only what is its own.
        if link.get_extra_info("username") != "root":
            command = f"sudo -n {script}; [ $? != 1 ] || exec {script}"
        try:
            holding = await link.create_process(command)
            async with asyncio.timeout(self._timeout):
                word = (await holding.stdout.readline()).strip()
            if word == "begun":
                async with asyncio.timeout(2 * PATIENCE_SECONDS + self._timeout):
                    word, _, rest = (await holding.stdout.readline()).strip().partition(" ")
                if word == "ready":
                    self._folder = rest
                    return holding
                if word in ("held", "busy"):
                    raise self._busy(word, rest or "somebody who does not say who", tried)
            words = " ".join((await holding.stderr.read()).split())
            await holding.wait_closed()
        except TimeoutError as error:
            problem = (
                f"the command that takes the machine's lock did not end within {self._timeout:g} s"
            )
            remedy = "look on the host for what it waits for; the step can simply be run again"
            raise CommandTimeoutError(self._target, tried, problem, remedy) from error
        except (OSError, asyncssh.Error) as error:
            problem = f"the connection broke off ({str(error) or type(error).__name__})"
            remedy = "check the host and its network, then run again"
            raise UnreachableError(self._target, tried, problem, remedy) from error
        raise error_of(self._target, tried, holding.exit_status, words)

    def _busy(self, word: str, who: str, tried: str) -> MachineBusyError:
        problem = f"the machine is being changed by {who}"
        remedy = "wait for that run, or end it, then run again"
        if word == "busy":
            problem = f"a command that another run has left there is still at work ({who})"
            remedy = (
                "wait for it, or end it: `fuser -v /run/gpu-clusters/work` names it; then run again"
            )
        return MachineBusyError(self._target, tried, problem, remedy)


def _me() -> str:
    """Who holds the lock, for somebody who waits for it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    stack = os.environ.get("PULUMI_STACK")
    of = f" (stack {stack})" if stack else ""
    now = datetime.now(UTC)
    return f"process {os.getpid()} of {user}@{socket.gethostname()}{of} since {now:%Y-%m-%d %H:%M:%S} UTC"


@cache
def _text() -> str:
    """The script without its comments, which nobody needs in a process list."""
    lines = scripts.read("host/hold_machine.sh").splitlines()
    return "\n".join(line for line in lines if line and not line.startswith("#"))
