"""The first process of a node: makes its mounts, starts its programs, reaps, starts again what ended.

`python -m lab.nodes.first_process FOLDER`, in namespaces of its own. It is told on standard input and
answers on standard output, one JSON object per line; when its input ends, it ends, and all of the node with
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lab.nodes import relay
from lab.nodes.configuration import CONTAINERD_SOCKET
from lab.nodes.folder import DIAL, RealNodeFolder
from lab.nodes.mounts import Mounts

_CONTAINERD_SECONDS = 60.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_AGAIN_SECONDS = 0.5


class Program:
    """One program of the node, which runs as long as it is wanted."""

    def __init__(self, name: str, command: list[str], log: Path, path: str) -> None:
        self.name = name
        self.wanted = True
        self.pid: int | None = None
        self._command = command
        self._log = log
        self._path = path

    def start(self) -> None:
        """Start it; its output goes to its log."""
        self.wanted = True
        with self._log.open("ab") as out:
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                # Nothing of the user's: a proxy would send it elsewhere.
                env={"PATH": self._path, "HOME": "/root"},
                start_new_session=True,
            )
        self.pid = child.pid
        # The one that reaps is not Popen but this process for all that is in the node.
        child.returncode = 0

    def end(self, number: int) -> None:
        """Send it a signal."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class FirstProcess:
    """One node from inside."""

    def __init__(self, folder: RealNodeFolder, boot: dict[str, Any]) -> None:
        self._folder = folder
        self._boot = boot
        path = os.pathsep.join([str(folder.plugins), os.environ.get("PATH", os.defpath)])
        self._programs = {
            name: Program(name, command, folder.log(name), path)
            for name, command in boot["programs"].items()
        }

    def prepare(self) -> None:
        """Mounts, name, and that packets of pods are passed on."""
        socket.sethostname(self._folder.name[:63])
        keep = [Path(path) for path in self._boot["keep"]]
        devices = {path: (n[0], n[1]) for path, n in self._boot["devices"].items()}
        Mounts(self._folder.path, keep).make(devices)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")

    def load_images(self) -> None:
        """Start containerd and give it the images that it has not."""
        containerd = self._programs["containerd"]
        containerd.start()
        deadline = time.monotonic() + _CONTAINERD_SECONDS
        while not _answers(CONTAINERD_SOCKET):
            if time.monotonic() > deadline or not Path(f"/proc/{containerd.pid}").exists():
                raise TimeoutError(
                    f"containerd does not answer; see {self._folder.log('containerd')}"
                )
            time.sleep(_POLL_SECONDS)
        known_file = self._folder.path / "images.json"
        known = json.loads(known_file.read_text()) if known_file.exists() else []
        for image in self._boot["images"]:
            if image not in known:
                command = ["--namespace", "k8s.io", "images", "import", "--local", image]
                subprocess.run(
                    [self._boot["ctr"], *command], check=True, capture_output=True, text=True
                )
        known_file.write_text(json.dumps(self._boot["images"]))

    async def run(self) -> None:
        """Serve the API server's address, start the kubelet, do as told until the input ends."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for address, port, path in self._boot["doors"]:
            far = functools.partial(asyncio.open_unix_connection, path)
            await asyncio.start_server(relay.to(far), address, port, backlog=512)
        dial = Path(self._folder.name) / DIAL
        dial.unlink(missing_ok=True)
        await asyncio.start_unix_server(self._dial, dial)
        for name, program in self._programs.items():
            if name != "containerd":
                program.start()
        say({"running": True})
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            say(await self._obey(json.loads(line)))

    async def _dial(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection from the machine to the address and port in its first line."""
        where = (await reader.readline()).split()
        if len(where) != 2 or not where[1].isdigit():
            writer.close()
            return
        far = functools.partial(asyncio.open_connection, where[0].decode(), int(where[1]))
        await relay.to(far)(reader, writer)

    async def _obey(self, request: dict[str, str]) -> dict[str, Any]:
        program = self._programs.get(request["program"])
        if program is None:
            return {"error": f"a node has no program {request['program']!r}"}
        if request["action"] in ("stop", "restart"):
            await self._stop(program)
        if request["action"] in ("start", "restart") and program.pid is None:
            program.start()
        return {"pid": program.pid}

    async def _stop(self, program: Program) -> None:
        program.wanted = False
        program.end(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while program.pid is not None:
            if time.monotonic() > deadline:
                program.end(signal.SIGKILL)
            await asyncio.sleep(_POLL_SECONDS)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for program in self._programs.values():
                if program.pid == pid:
                    self._ended(program, status)

    def _ended(self, program: Program, status: int) -> None:
        program.pid = None
        if program.wanted:
            code = os.waitstatus_to_exitcode(status)
            print(f"{self._folder.name}: {program.name} ended with {code}", file=sys.stderr)
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._again, program)

    def _again(self, program: Program) -> None:
        if program.wanted and program.pid is None:
            program.start()


def say(answer: dict[str, Any]) -> None:
    """One line to whoever holds the node."""
    print(json.dumps(answer), flush=True)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def main(folder: RealNodeFolder) -> None:
    """Be the first process of this node."""
    # A first process has no default actions: what would end another must be said.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Paths of sockets are short: from here.
    os.chdir(folder.path.parent)
    node = FirstProcess(folder, json.loads(folder.boot.read_bytes()))
    try:
        node.prepare()
        say({"prepared": True})
        if not sys.stdin.readline():
            return
        node.load_images()
    except subprocess.CalledProcessError as error:
        say({"error": f"`{' '.join(map(str, error.cmd))}` failed: {error.stderr.strip()}"})
        return
    except (OSError, ValueError) as error:
        say({"error": str(error)})
        return
    asyncio.run(node.run())


if __name__ == "__main__":
    main(RealNodeFolder(Path(sys.argv[1])))
