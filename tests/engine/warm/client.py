"""Stands for a Python process that a server has forked: `client.py SOCKET ARGUMENT…`.

Hands over its arguments, environment, folder and open files, and ends as the other does. Whoever
kills it kills the other, and it ends with the process that has started it. Starting it is what each
command costs, so it imports nothing that is written in Python, not even `os` and `socket`.
"""

import _signal
import _socket
import posix
import sys

_PARENT_SECONDS = 0.3


def main() -> int:
    """Have it run; give its exit code."""
    parent = posix.getppid()
    # Whatever their numbers: those of a client with many open files are large. That of the listing
    # itself is the next free one, which is the connection's then.
    files = sorted(map(int, posix.listdir("/proc/self/fd")))
    connection = _socket.socket(_socket.AF_UNIX)
    connection.connect(sys.argv[1])
    files.remove(connection.fileno())
    words = [posix.getcwd(), str(len(sys.argv) - 2), *sys.argv[2:], *map(str, files)]
    fields = [word.encode("utf-8", "surrogateescape") for word in (str(len(files)), *words)]
    variables = [b"%b=%b" % variable for variable in posix.environ.items()]
    body = b"\0".join(fields + variables)
    numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in files)
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)
    connection.sendmsg([len(body).to_bytes(4, "big")], [rights])
    connection.sendall(body)
    for number in (_signal.SIGINT, _signal.SIGTERM):
        _signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
    connection.settimeout(_PARENT_SECONDS)
    while True:
        try:
            answer = connection.recv(4)
            return int.from_bytes(answer, "big") if answer else 1
        except TimeoutError:
            if posix.getppid() != parent:
                return 1


if __name__ == "__main__":
    code = main()
    if code >= 256:
        # A signal has ended the other.
        posix.kill(posix.getpid(), code - 256)
    posix._exit(code)
