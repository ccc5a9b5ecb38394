"""Stands for a Python process that a server has forked: `client.py SOCKET ARGUMENT…`.

Hands over its arguments, environment, folder and open files, and ends as the other does. Whoever
kills it kills the other, and it ends with the process that has started it. It imports next to
nothing: starting it is what each command costs.
"""

import array
import os
import select
import signal
import socket
import sys

_PARENT_SECONDS = 0.3


def main() -> int:
    """Have it run; give its exit code."""
    parent = os.getppid()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    own = connection.fileno()
    # Whatever their numbers: those of a client with many open files are large.
    listed = sorted(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208
    files = [number for number in listed if number != own and _open(number)]
    variables = [f"{key}={value}" for key, value in os.environ.items()]
    fields = [os.getcwd(), str(len(sys.argv) - 2), *sys.argv[2:], *map(str, files)]  # noqa: PTH109
    body = "\0".join([str(len(files)), *fields, *variables]).encode("utf-8", "surrogateescape")
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
    connection.sendmsg([len(body).to_bytes(4, "big")], [rights])
    connection.sendall(body)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
    while not select.select([connection], [], [], _PARENT_SECONDS)[0]:
        if os.getppid() != parent:
            return 1
    answer = connection.recv(4)
    return int.from_bytes(answer, "big") if answer else 1


def _open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    code = main()
    if code >= 256:
        # A signal has ended the other.
        os.kill(os.getpid(), code - 256)
    os._exit(code)
