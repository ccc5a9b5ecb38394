"""Starts Python processes that have imported what they need: `server.py SOCKET MODULE…`.

Most of a short command is the imports of three processes. The server imports the modules once and
forks for each `client.py`, so that what runs is a process of its own as ever, with the arguments,
environment, folder and open files of its client. It ends with its standard input.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

_SIGNAL = 256
"""Exit codes from here on say which signal has ended the process."""


def main() -> None:
    """Serve until the standard input ends; return in the processes that are to run something."""
    path, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    # What is there stays in pages that all share: nobody looks through it for garbage.
    gc.collect()
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for supervisors
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        if 0 in ready:
            sys.exit()
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _supervise(connection)
            return
        connection.close()


def _supervise(connection: socket.socket) -> None:
    """Fork once more, and tell the client how that ends; returns in the process that runs."""
    arguments, files, received = _receive(connection)
    worker = os.fork()
    if worker == 0:
        connection.close()
        os.setsid()
        _move(received, files)
        sys.argv = arguments
        return
    os.closerange(0, connection.fileno())
    os.closerange(connection.fileno() + 1, 256)
    ended = os.pidfd_open(worker)
    while ended not in select.select([ended, connection], [], [])[0]:
        # A signal for the process; a client that has been killed takes it along.
        sent = connection.recv(1) or bytes([signal.SIGKILL])
        os.kill(worker, sent[0])
    _, status = os.waitpid(worker, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):
        connection.sendall((code if code >= 0 else _SIGNAL - code).to_bytes(4, "big"))
    os._exit(0)


def _receive(connection: socket.socket) -> tuple[list[str], list[int], list[int]]:
    size = array.array("i").itemsize
    head, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_LEN(64 * size))
    received = array.array("i")
    for _, _, content in ancillary:
        received.frombytes(content)
    length = int.from_bytes(head, "big")
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    count, folder, words, *rest = body.decode("utf-8", "surrogateescape").split("\0")
    arguments, rest = rest[: int(words)], rest[int(words) :]
    files, variables = list(map(int, rest[: int(count)])), rest[int(count) :]
    os.environ.clear()
    os.environ.update(variable.partition("=")[::2] for variable in variables)
    os.chdir(folder)
    return arguments, files, list(received)


def _move(received: Sequence[int], wanted: Sequence[int]) -> None:
    """Give the files the numbers that they have in the client; nothing else stays open."""
    # Beyond all of them: a client with many open files has large numbers.
    beyond = max(128, *(target + 1 for target in wanted))
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, beyond) for number in received]
    os.closerange(0, beyond)
    for number, target in zip(high, wanted, strict=True):
        os.dup2(number, target)
        os.set_inheritable(target, target < 3)
    os.closerange(beyond, beyond + 384)


def run(arguments: list[str]) -> None:
    """Do what `python ARGUMENT…` does, for the forms that the engine uses."""
    isolated = False
    while arguments[0] in ("-u", "-P"):
        isolated |= arguments[0] == "-P"
        if arguments.pop(0) == "-u":
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    kind, *rest = arguments
    # In the place of this file's folder: what Python puts there by itself.
    firsts = {"-c": "", "-m": str(Path.cwd())}
    sys.path[0:1] = [] if isolated else [firsts.get(kind, str(Path(kind).absolute().parent))]
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *rest]
        runpy.run_path(kind, run_name="__main__")


def end(code: int) -> NoReturn:
    """End as Python does, but take nothing apart: what is imported is most of a short command."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    os._exit(code)


if __name__ == "__main__":
    main()
    try:
        run(sys.argv)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise  # Python says what it is
        end(ended.code or 0)
    end(0)
