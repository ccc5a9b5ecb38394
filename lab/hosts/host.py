"""One simulated host inside the server: runs its commands, answers for its stand-ins."""

import asyncio
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.files import read_json
from lab.hosts import accounts, condition, control, faults, sudo, tree
from lab.hosts.call import Answer, Call, Finished
from lab.hosts.folder import HostFolder
from lab.hosts.hardware.board import board
from lab.hosts.hardware.boot import Power
from lab.hosts.hardware.kernel import Kernel
from lab.hosts.machine import Machine
from lab.hosts.model import USER
from lab.hosts.network import Accepting, Network
from lab.hosts.program import NOT_FOUND
from lab.hosts.registry import STAND_INS, SUDO, names_on
from lab.hosts.request import Request, answer_of, hung_up, receive
from lab.hosts.rke2.real_machine import RealMachine
from lab.hosts.systemd.services import NOTIFY_VARIABLE, Services
from lab.hosts.tree import OPERATOR_ID
from lab.hosts.views import Command, Launcher, Running, environment
from lab.hosts.writes import Watcher


class Host:
    """A machine: its files, its state, its stand-ins, the commands that run on it."""

    def __init__(self, folder: HostFolder, launcher: Launcher, watcher: Watcher) -> None:
        identity = read_json(folder.identity)
        self.identity = identity
        self.folder = folder
        self.platform = board(identity["platform"])
        self._launcher = launcher
        self._times: dict[str, int] = {}
        self._watcher = watcher
        self._network: Network | None = None
        self._commands: set[Running] = set()
        tree.build(folder, self.platform, identity, many_users=launcher.switches_user)
        self._mounts = tree.mounts(folder, names_on(identity["system"]))
        self.machine = Machine(folder, self.platform)
        self.kernel = Kernel(self.machine, device_nodes=launcher.switches_user)
        self.services = Services(self.machine, self._run, self.faults)
        self.power = Power(
            self.machine, self.kernel, self.services, self.faults, halt=self.halt, watch=self.watch
        )
        if "made" not in self.machine.state:
            self.machine.state["made"] = True
            condition.make(self.machine, self.kernel, identity)
        self.watch()
        self._listener = control.listen(folder.root / tree.SOCKET, 0o666)
        self._answering: set[asyncio.Task[None]] = set()
        self._accepting = Accepting(self._listener, self._asked)

    @property
    def many_users(self) -> bool:
        """Whether root and the operator are two users on this host."""
        return self._launcher.switches_user

    @property
    def node(self) -> RealMachine | None:
        """The real node that is one machine with this host."""
        return self.services.real.node

    def stands_on(self, node: RealMachine | None, network: Network | None) -> None:
        """From now on this host is one machine with a real node, in its network; None: with none."""
        self._network = network
        self.services.real.node = node

    def faults(self) -> faults.Faults:
        """The faults injected at this moment."""
        return faults.read(self.folder)

    async def start(self, command: str | None, streams: tuple[int, int, int]) -> Running:
        """Run a command line that came in over SSH, as the operator."""
        argv = ["/bin/sh", "-c", command] if command is not None else ["/bin/sh"]
        return await self._run(self._at_once(command) or Command(argv), streams)

    def _at_once(self, command: str | None) -> Command | None:
        """What `sudo` runs, where a shell would only split the line: most of what comes in.

        A view for the shell, and a client in it that asks for `sudo`, would take twice as long.
        """
        words = sudo.words(command or "")
        if words is None or self.faults().first(faults.SudoNeedsPassword):
            return None
        asked = self._elevated(words[1:], environment(OPERATOR_ID), f"/home/{USER}")
        return None if isinstance(asked, Answer) else asked

    def prepared_answer(self, command: str) -> Answer | None:
        """What a fault says this command answers instead of running."""
        for fault in self.faults().all(faults.CommandFails):
            if not fault.concerns(command):
                continue
            seen = self._times.get(fault.token, 0)
            if fault.times is not None and seen >= fault.times:
                continue
            self._times[fault.token] = seen + 1
            return Answer(fault.exit, fault.stdout, fault.stderr)
        return None

    async def _run(self, command: Command, streams: tuple[int, int, int]) -> Running:
        if self.machine.state.get("power") == "off":
            raise ConnectionAbortedError("the machine is going down")
        full = [fault.path for fault in self.faults().all(faults.DiskFull)]
        for path in full:
            _ensure_folder(self.machine.path(path))
        inside = ["/" + str(self.machine.path(path).relative_to(self.folder.root)) for path in full]
        running = await self._launcher.start(
            self.folder.root,
            self.folder.name,
            self._mounts,
            Command(command.argv, command.uid, command.cwd, command.environment, inside),
            streams,
            network=self._network.descriptor if self._network is not None else None,
        )
        self._commands = {other for other in self._commands if not other.has_ended}
        self._commands.add(running)
        if self.machine.state.get("power") == "off":
            running.kill()  # the machine went down while this was on its way
        return running

    async def execute(self, argv: Sequence[str]) -> Finished:
        """Run a command on the host as root, and wait for its end."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        out, errors = os.memfd_create("out"), os.memfd_create("errors")
        try:
            command = Command(argv, uid=0, cwd="/", environment=environment(0))
            running = await self._run(command, (nothing, out, errors))
            code = await running.wait()
            return Finished(code, _content(out), _content(errors) + (running.problem or ""))
        finally:
            for descriptor in (nothing, out, errors):
                os.close(descriptor)

    def reboot(self) -> None:
        self.power.reboot()

    def watch(self) -> None:
        """Look at all files of sysfs that take effect when they are written."""
        for folder in self.kernel.watched():
            self._watcher.watch(folder, self._written)

    def settle(self) -> None:
        """Let what was written to sysfs until now take effect."""
        self._watcher.settle()

    async def halt(self) -> None:
        await self.services.halt()
        commands, self._commands = self._commands, set()
        for running in commands:
            running.kill()
        # Not before they are gone: what a boot clears away must not be written to any more.
        await asyncio.gather(*(running.wait() for running in commands))

    def _written(self, path: Path) -> None:
        self.kernel.written(path, self.faults())

    def _asked(self, connection: socket.socket) -> None:
        task = asyncio.create_task(self._answer(connection))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, connection: socket.socket) -> None:
        streams: tuple[int, ...] = ()
        try:
            request = await receive(connection)
            if request is None:
                return
            streams = request.streams
            if request.name == SUDO:
                answer = await self._sudo(request, connection)
            elif request.name not in STAND_INS:
                # `reboot` and the like are other names of programs that a stand-in covers.
                text = f"{request.name}: not available on a simulated host"
                answer = Answer.error(text, NOT_FOUND)
            else:
                answer = await self._stand_in(request, connection)
            out, err = answer.stdout.encode(), answer.stderr.encode()
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(connection, answer_of(answer.exit, out, err))
        except OSError:
            # The command that asked is gone, killed with its view; there is nobody to answer.
            return
        finally:
            for descriptor in streams:
                os.close(descriptor)
            connection.close()

    async def _stand_in(self, request: Request, connection: socket.socket) -> Answer:
        started = time.monotonic()
        uid = request.uid if self.many_users else 0
        call = Call(
            self.machine,
            request.name,
            request.arguments,
            uid,
            request.cwd,
            self.faults(),
            request.environment,
            self,
        )
        self.settle()
        line = " ".join([request.name, *request.arguments])
        made = STAND_INS[request.name](call)
        answer = made if isinstance(made, Answer) else await made
        self.machine.save()
        self.machine.note(
            "stand-in",
            command=line,
            uid=uid,
            exit=None if answer.never else answer.exit,
            seconds=round(time.monotonic() - started, 4),
        )
        if answer.never:
            # A stand-in that stays is a service that is up.
            self.services.said_ready(call.environment.get(NOTIFY_VARIABLE, ""))
            await hung_up(connection)
        return answer

    async def _sudo(self, request: Request, connection: socket.socket) -> Answer:
        if self.faults().first(faults.SudoNeedsPassword):
            return Answer.error("sudo: a password is required", 1)
        command = self._elevated(request.arguments, request.environment, request.cwd)
        if isinstance(command, Answer):
            return command
        stdin, stdout, stderr = request.streams
        running = await self._run(command, (stdin, stdout, stderr))
        ended = asyncio.create_task(running.wait())
        gone = asyncio.create_task(hung_up(connection))
        try:
            await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                running.kill()
            exit_code = await ended
        finally:
            running.kill()
            # Wait until it has let go of the connection: a reader of a descriptor that is closed and
            # used again would take the next user's events away.
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        if running.problem:
            return Answer.error(f"sudo: {running.problem}", 1)
        return Answer(exit_code)

    def _elevated(
        self, arguments: Sequence[str], variables: Mapping[str, str], cwd: str
    ) -> Command | Answer:
        """What `sudo` with these arguments runs, or answers by itself."""
        known = {"root": 0, **{n: one.uid for n, one in accounts.ordinary(self.machine).items()}}
        parsed = sudo.parse(arguments, variables, known)
        if isinstance(parsed, Answer):
            return parsed
        login = environment(parsed.uid)
        account = accounts.by_uid(self.machine, parsed.uid)
        if account is not None and account.name not in {"root", USER}:
            login |= {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
            # It stays where it was, which another account may not enter; here it has to.
            cwd = account.home
        return Command(parsed.argv, parsed.uid, cwd, {**login, **parsed.environment})

    async def close(self) -> None:
        """Stop answering. Commands end with the launcher."""
        await self.power.close()
        await self.services.halt()
        self._watcher.forget(self.folder.root)
        self._accepting.stop()
        tasks = [*self._answering]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()


def _ensure_folder(folder: Path) -> None:
    """A folder to mount a full disk on, owned like the one that it lies in."""
    if not folder.exists():
        _ensure_folder(folder.parent)
        owner = folder.parent.stat()
        folder.mkdir()
        os.chown(folder, owner.st_uid, owner.st_gid)


def _content(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read().decode(errors="replace")
