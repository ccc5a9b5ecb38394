"""The first process of a node: makes its mounts, starts its programs, reaps, starts again what ended.

`python -m lab.nodes.first_process FOLDER`, in namespaces of its own. It is told on standard input and
answers on standard output, one JSON object per line, each with the number of its request; 0 says that the
node is made. When its input ends, it ends, and all of the node with it.
"""

import asyncio
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab.nodes import configuration, cri, loading, relay
from lab.nodes.folder import DIAL, RealNodeFolder
from lab.nodes.mounts import Mounts
from lab.nodes.program import Program

_SETTLED_SECONDS = 60.0
_CONTAINERD_SECONDS = 300.0
_AGAIN_SECONDS = 0.5
_GIVEN_UP_SECONDS = 10.0
"""Longer than whoever dials waits."""
_SERVES_SECONDS = 240.0
"""Other labs may have all watches of files that this user has, until they end."""
CONTAINERD = "containerd"


class RefusedError(Exception):
    """The node cannot do what it was asked; the text is the answer."""


class FirstProcess:
    def __init__(self, folder: RealNodeFolder, boot: Mapping[str, Any]) -> None:
        self._folder = folder
        self._boot = boot
        read, written = ([Path(path) for path in boot[key]] for key in ("read", "written"))
        self._mounts = Mounts(folder.path, read, written)
        self._programs: dict[str, Program] = {}
        self._doors: dict[tuple[str, int], asyncio.Server] = {}
        self._carried: set[asyncio.Task[Any]] = set()
        """Connections that go over a socket of the machine."""
        self._cut = False
        self._ctr: list[str] = []
        self._waiting = False
        self._one_foreign = asyncio.Lock()
        self._turn = 0
        """How often programs were started and stopped as somebody wanted it."""
        self._unloaded: Mapping[str, Any] | None = None
        """What a containerd that did not start yet was to be given."""
        self._settling: set[asyncio.Task[None]] = set()
        self._does = {
            "begin": self._begin,
            "load": self._load,
            "open": self._open,
            "cut": self._cut_off,
            "program": self._program,
            "cease": self._cease,
        }

    def prepare(self) -> None:
        """Mounts, name, and that packets of pods are passed on."""
        socket.sethostname(self._folder.name[:63])
        devices = {path: (n[0], n[1]) for path, n in self._boot["devices"].items()}
        self._mounts.make(devices, self._boot["covers"])
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        dial = Path(self._folder.name) / DIAL
        dial.unlink(missing_ok=True)
        await asyncio.start_unix_server(self._dial, dial)
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            request = json.loads(line)
            say({**await self._obey(request), "number": request["number"]})

    async def _dial(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection from the machine to the address and port in its first line.

        An empty line says when it is through.
        """
        where = (await reader.readline()).split()
        if len(where) != 2 or not where[1].isdigit():
            writer.close()
            return

        async def far() -> relay.Streams:
            try:
                return await asyncio.open_connection(where[0].decode(), int(where[1]))
            except ConnectionError:
                raise
            except OSError:
                # The kernel has given up a node that is cut off. That is no refusal: another try may lead on.
                await asyncio.sleep(_GIVEN_UP_SECONDS)
                raise

        await self._while_plugged(relay.to(far, b"\n"), reader, writer)

    async def _while_plugged(
        self, carry: relay.Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry a connection as long as the node's cable is in."""
        task = asyncio.current_task()
        if self._cut or task is None:
            writer.close()
            return
        self._carried.add(task)
        try:
            await carry(reader, writer)
        finally:
            self._carried.discard(task)

    async def _cut_off(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The cable is out, or in again: what a node has by sockets of the machine it has not by itself."""
        self._cut = request["cut"]
        for task in self._carried if self._cut else ():
            task.cancel()
        return {}

    async def _obey(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await self._does[request["do"]](request)
        except subprocess.CalledProcessError as error:
            return {"error": f"`{' '.join(map(str, error.cmd))}` failed: {error.stderr.strip()}"}
        except (RefusedError, OSError, ValueError) as error:
            return {"error": str(error)}

    async def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Listen at exactly these doors: address, port, and the socket that each leads to."""
        wanted = {(address, port): path for address, port, path in request["doors"]}
        for door in self._doors.keys() - wanted.keys():
            self._doors.pop(door).close()
        for door in wanted.keys() - self._doors.keys():
            far = functools.partial(asyncio.open_unix_connection, wanted[door])
            carry = functools.partial(self._while_plugged, relay.to(far))
            self._doors[door] = await asyncio.start_server(carry, *door, backlog=512)
        return {}

    async def _begin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Start the programs, in their order; containerd has its images before the others start."""
        # Those of a begin that failed, and is tried again.
        await self._stop_all()
        for source, target in request["bound"]:
            self._mounts.bind(Path(source), Path(target))
        for folder in request["folders"]:
            self._mounts.own(Path(folder))
        for target, arguments in request["mounts"].items():
            self._mounts.add(Path(target), *arguments)
        path = os.pathsep.join([str(self._folder.plugins), os.environ.get("PATH", os.defpath)])
        for name, program in request["programs"].items():
            log, answers = self._folder.log(name), program["answers"]
            self._programs[name] = Program(name, program["command"], log, path, answers)
        self._unloaded = request
        self._ctr = [request["ctr"], "--address", request["socket"]]
        failed = ""
        for name, program in self._programs.items():
            program.start()
            if name == CONTAINERD and not await self._loaded(program):
                # The others start all the same, as on a machine; it is tried again with the rest.
                failed = _silent(program, self._folder)
        if failed:
            raise RefusedError(failed)
        return {}

    async def _loaded(self, containerd: Program) -> bool:
        """Once it serves kubelets, containerd has its images; False if it does not, with its words kept."""
        if not await self._serves(containerd):
            return False
        if self._unloaded is not None:
            await self._load(self._unloaded)
            self._unloaded = None
        return True

    async def _serves(self, containerd: Program) -> bool:
        deadline, turn = time.monotonic() + _SERVES_SECONDS, self._turn
        while await containerd.works(_CONTAINERD_SECONDS):
            containerd.words = await self._foreign(cri.fault, self._ctr)
            if not cri.passes(containerd.words) or time.monotonic() > deadline:
                return not containerd.words
            await containerd.stop()
            await asyncio.sleep(_AGAIN_SECONDS)
            if turn != self._turn:
                # Somebody else has stopped or started it meanwhile, and sees to it.
                return False
            if not containerd.runs:
                containerd.start()
        return False

    async def _foreign(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run something that starts programs and waits for them itself; meanwhile only ours are reaped."""
        async with self._one_foreign:
            self._waiting = True
            try:
                return await asyncio.to_thread(work, *arguments)
            finally:
                self._waiting = False
                self._reap()

    async def _load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Give containerd the images, and names of images, that it has not."""
        root = Path(request["root"])
        images, aliases = request["images"], request["aliases"]
        await self._foreign(loading.load, self._ctr, images, aliases, root / loading.KNOWN, root)
        return {}

    async def _program(self, request: Mapping[str, Any]) -> dict[str, Any]:
        program = self._programs.get(request["program"])
        if program is None:
            raise RefusedError(f"a node has no program {request['program']!r}")
        action = request["action"]
        if action in ("stop", "restart"):
            self._turn += 1
            await program.stop()
        if action in ("start", "restart") and program.pid is None:
            self._turn += 1
            program.words = ""
            program.start()
            await self._settled(program)
            if program.words or not program.runs:
                raise RefusedError(_silent(program, self._folder))
        return {"pid": program.pid, "wanted": program.wanted, "words": program.words}

    async def _cease(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Stop the programs; with `containers` also all that they started, and forget what they kept."""
        await self._stop_all()
        self._programs.clear()
        if request["containers"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            self._mounts.clear()
            # With another range of pods it would keep its old address.
            bridge = ["ip", "link", "delete", configuration.BRIDGE]
            subprocess.run(bridge, check=False, capture_output=True)
            shutil.rmtree(configuration.ADDRESSES, ignore_errors=True)
        return {}

    async def _stop_all(self) -> None:
        self._turn += 1
        for program in reversed(self._programs.values()):
            await program.stop()

    def _reap(self) -> None:
        for program in self._programs.values():
            if program.pid is not None:
                pid, status = os.waitpid(program.pid, os.WNOHANG)
                if pid:
                    self._ended(program, status)
        while not self._waiting:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            # It may have ended since it was looked at above, and nobody hears of it a second time.
            for program in self._programs.values():
                if program.pid == pid:
                    self._ended(program, status)

    def _ended(self, program: Program, status: int) -> None:
        program.ended(status)
        if program.wanted:
            print(f"{self._folder.name}: {program.words}", file=sys.stderr, flush=True)
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._again, program)

    def _again(self, program: Program) -> None:
        if program.wanted and program.pid is None:
            program.start()
            task = asyncio.get_running_loop().create_task(self._kept(program))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _kept(self, program: Program) -> None:
        """As long as containerd may come to serve kubelets by being tried again, it is: nobody else looks."""
        await self._settled(program)
        while program.runs and cri.passes(program.words):
            await self._settled(program)

    async def _settled(self, program: Program) -> None:
        """Wait until it works or has ended once more."""
        if program.name == CONTAINERD:
            # It ended while it was given images: with its next start it is given them again.
            with contextlib.suppress(subprocess.CalledProcessError):
                await self._loaded(program)
        else:
            await program.works(_SETTLED_SECONDS)


def _silent(program: Program, folder: RealNodeFolder) -> str:
    return program.words or f"{program.name} does not answer; see {folder.log(program.name)}"


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main(folder: RealNodeFolder) -> None:
    # A first process has no default actions: what would end another must be said.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        node = FirstProcess(folder, json.loads(folder.boot.read_bytes()))
        node.prepare()
    except subprocess.CalledProcessError as error:
        text = f"`{' '.join(map(str, error.cmd))}` failed: {error.stderr.strip()}"
        say({"error": text, "number": 0})
        return
    except (OSError, ValueError) as error:
        say({"error": str(error), "number": 0})
        return
    # Paths of sockets are short: from here, as the node has it.
    os.chdir(folder.path.parent)
    say({"number": 0})
    asyncio.run(node.run())


if __name__ == "__main__":
    main(RealNodeFolder(Path(sys.argv[1])))
