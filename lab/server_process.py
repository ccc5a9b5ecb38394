"""Servers of the lab: processes with a folder that outlive the command which starts them."""

import asyncio
import fcntl
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from lab.files import At, read_json, write_json

_SAME_TIME_SECONDS = 10.0
"""By how much one process's start may seem to move: it is told by the machine's clock, which is set now and
then, in whole seconds. Pids are not used again that soon."""
_KILLED_SECONDS = 120.0
"""For a process that was killed to be gone, and those that end with it."""
_POLL_SECONDS = 0.02
_FOLDER_SECONDS = 1.0
_PROJECT = Path(__file__).resolve().parents[1]

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """Where a server keeps what others must find; servers add paths of their own."""

    path: Path

    specs = At("specs.json")
    """What it is to serve, written by whoever starts it."""
    ready = At("ready.json")
    """What it serves, written by itself when it does."""
    process = At("process.json")
    """Which process serves: pid and start time."""
    faults = At("faults.json")
    """Injected faults."""
    log = At("server.log")
    """Its standard error."""
    start_lock = At("start.lock")
    """Held by whoever starts or stops it."""
    serve_lock = At("serve.lock")
    """Held by it as long as it lives."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    running: bool
    pid: int | None
    log: Path
    detail: str


@dataclass(frozen=True, slots=True)
class Server:
    """One kind of server: its module, whose `serve FOLDER` it is, what people call it, how it fails."""

    module: str
    called: str
    """As in `starting …`, `… ended`."""
    error: type[Exception]
    start_seconds: float = 120.0
    """Half a second does where nothing else runs; one that ends is told at once."""
    stop_seconds: float = 60.0
    log_level: int = logging.INFO
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of its environment."""
    clean: Callable[[Any], None] = lambda _: None
    """Removes from its folder, and from the machine, what a killed one left behind."""

    def find(self, paths: ServerFolder) -> psutil.Process | None:
        return living(read_json(paths.process))

    @contextmanager
    def starting(self, paths: ServerFolder) -> Iterator[None]:
        """Hold the folder, which is made; a full disk is told as such."""
        try:
            paths.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            with one_at_a_time(paths.start_lock):
                yield
        except OSError as error:
            raise self.error(
                f"{self.called} in {paths.path} cannot be started: {error}; free space there, or choose "
                "another folder"
            ) from error

    def start(self, paths: ServerFolder, wanted: dict[str, Any], report: Report) -> ServerStatus:
        """Let it serve what is wanted; one that does is left alone."""
        with self.starting(paths):
            running = self.find(paths) is not None
            if not running or read_json(paths.specs) != wanted or not paths.ready.exists():
                self.end(paths)
                write_json(paths.specs, wanted)
                report(f"{'restarting' if running else 'starting'} {self.called}")
                self.launch(paths)
        return self.status(paths)

    def launch(self, paths: ServerFolder) -> None:
        """Start the process and wait until it is ready; if it ends, its last line is the error."""
        paths.ready.unlink(missing_ok=True)
        with paths.log.open("ab") as log:
            begin = log.tell()
            process = spawn(self.module, paths.path, log, **self.variables)
        try:
            self.wait_until_ready(paths, psutil.Process(process.pid))
        except (self.error, psutil.NoSuchProcess) as error:
            if process.poll() is None:
                process.kill()
                process.wait()
                self.clean(paths)
                raise
            lines = paths.log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
            raise self.error(lines[-1] if lines else str(error)) from None

    def wait_until_ready(self, paths: ServerFolder, server: psutil.Process) -> None:
        """Wait for `ready`, as long as the process lives."""
        deadline = time.monotonic() + self.start_seconds
        while not paths.ready.exists():
            gone = not runs(server)
            if gone or time.monotonic() > deadline:
                raise self.error(
                    f"{self.called} in {paths.path} "
                    + ("ended" if gone else f"was not ready in {self.start_seconds:.0f} s")
                    + f"; see {paths.log}"
                )
            time.sleep(_POLL_SECONDS)

    def end(self, paths: ServerFolder) -> None:
        """End the process. The caller holds the folder."""
        server = self.find(paths)
        if server is not None:
            end(server, self.stop_seconds)
        self.clean(paths)
        paths.ready.unlink(missing_ok=True)

    def stop(self, paths: ServerFolder) -> None:
        """End the process. Nothing to do is fine; its files stay."""
        if paths.path.exists():
            with one_at_a_time(paths.start_lock):
                self.end(paths)

    def status(self, paths: ServerFolder) -> ServerStatus:
        server, ready = self.find(paths), paths.ready.exists()
        if server is not None and ready:
            return ServerStatus(running=True, pid=server.pid, log=paths.log, detail="running")
        gone = "it is gone without having been stopped" if ready else "not started"
        return ServerStatus(running=False, pid=None, log=paths.log, detail=gone)

    @contextmanager
    def serving(self, paths: ServerFolder) -> Iterator[None]:
        """In its own process: be the one server of the folder, as others find it."""
        lock = os.open(paths.serve_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            logging.basicConfig(
                level=self.log_level,
                stream=sys.stderr,
                format="%(asctime)s %(levelname)s %(message)s",
            )
            process = psutil.Process()
            write_json(paths.process, {"pid": process.pid, "created": process.create_time()})
            yield
        except BlockingIOError:
            raise self.error(f"another process serves {self.called} in {paths.path}") from None
        finally:
            os.close(lock)

    def run(self, paths: ServerFolder, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        """Serve until SIGTERM or SIGINT, or until nobody can find this process as its folder is gone."""

        async def until_told() -> None:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.set)
            watching = asyncio.create_task(_until_gone(paths.process, stop))
            await work(stop)
            watching.cancel()

        with self.serving(paths):
            asyncio.run(until_told())


async def _until_gone(file: Path, stop: asyncio.Event) -> None:
    while file.exists():
        await asyncio.sleep(_FOLDER_SECONDS)
    stop.set()


def living(record: Mapping[str, Any] | None) -> psutil.Process | None:
    """The process of a record with `pid` and `created`, if it still runs.

    A pid alone does not prove it: pids are used again.
    """
    if record is None:
        return None
    try:
        process = psutil.Process(record["pid"])
        same = abs(process.create_time() - record["created"]) < _SAME_TIME_SECONDS
        alive = process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return process if same and alive else None


def spawn(module: str, folder: Path, log: IO[bytes], **variables: str) -> subprocess.Popen[bytes]:
    """`python -m MODULE serve FOLDER` in a session of its own, from this checkout; with these variables."""
    import_path = os.pathsep.join(filter(None, [str(_PROJECT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", module, "serve", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": import_path, **variables},
    )


def end(server: psutil.Process, seconds: float) -> None:
    """Ask it to end, insist after so many seconds; afterwards neither it nor a child of it runs."""
    try:
        children = server.children(recursive=True)
        server.terminate()
    except psutil.NoSuchProcess:
        return
    try:
        server.wait(seconds)
    except psutil.TimeoutExpired:
        server.kill()
        server.wait(_KILLED_SECONDS)
    # They end with the server; waiting for it is what makes "stopped" true.
    deadline = time.monotonic() + _KILLED_SECONDS
    while any(map(runs, children)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def runs(process: psutil.Process) -> bool:
    """Whether it does; one that nobody collects does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Hold a lock that belongs to this process alone and goes with it; waits."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
