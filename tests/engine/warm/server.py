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
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    # What is there stays in pages that all share: nobody looks through it for garbage.
    gc.freeze()
    gc.enable()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    print("ready", flush=True)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        clients = {connection: pid for pid, connection in running.values()}
        ready = set(select.select([listening, 0, *running, *clients], [], [])[0])
        if 0 in ready:
            sys.exit()
        for ended in running.keys() & ready:
            _tell_end(*running.pop(ended))
            os.close(ended)
        for connection in clients.keys() & ready:
            if connection.fileno() >= 0:
                # A signal for the process; a client that has been killed takes it along.
                sent = connection.recv(1) or bytes([signal.SIGKILL])
                os.kill(clients[connection], sent[0])
        if listening in ready:
            connection, _ = listening.accept()
            body, received = _receive(connection)
            pid = os.fork()
            if pid == 0:
                for other in (listening, connection, *clients):
                    other.close()
                _become(body, received)
                return
            for number in received:
                os.close(number)
            running[os.pidfd_open(pid)] = (pid, connection)


def _tell_end(pid: int, connection: socket.socket) -> None:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    with connection, contextlib.suppress(OSError):
        connection.sendall((code if code >= 0 else _SIGNAL - code).to_bytes(4, "big"))


def _receive(connection: socket.socket) -> tuple[bytes, array.array[int]]:
    received = array.array("i")
    head, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_LEN(64 * received.itemsize))
    for _, _, content in ancillary:
        received.frombytes(content)
    # A client that has been killed sends less; what was to run has no arguments then and fails.
    return connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL), received


def _become(body: bytes, received: array.array[int]) -> None:
    """Take over the arguments, environment, folder and open files of the client."""
    count, folder, words, *rest = body.decode("utf-8", "surrogateescape").split("\0")
    sys.argv, rest = rest[: int(words)], rest[int(words) :]
    files, variables = list(map(int, rest[: int(count)])), rest[int(count) :]
    os.environ.clear()
    os.environ.update(variable.partition("=")[::2] for variable in variables)
    os.chdir(folder)
    os.setsid()
    _move(received, files)


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
