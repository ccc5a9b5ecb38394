"""Runs inside a simulated host under the name of every stand-in; asks the hosts' server to answer.

Where there is Perl, `client.pl` does the same in a fifth of the time; change both, as
`tests/lab/hosts/test_hosts_client.py` asks by both.
Started by a two-line shell script as `python -I -S client.py NAME ARGUMENT…`. It imports only what
is built into Python, because its start-up time is paid by every stand-in command.
Standard input, output and error travel with the question, so that `sudo` can run a command on
them as if it were a child.
"""

import _socket
import posix
import sys
from _struct import pack, unpack

SOCKET = "/usr/local/lib/lab-host/socket"


def _receive(connection: _socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise OSError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main() -> int:
    """The exit code that the stand-in answered; 125 when nobody answers."""
    name = sys.argv[1].rsplit("/", 1)[-1]
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    environment = [
        key + b"=" + value for key, value in posix.environ.items() if key != b"LD_LIBRARY_PATH"
    ]
    arguments = [argument.encode("utf-8", "surrogateescape") for argument in sys.argv[2:]]
    fields = [name.encode(), posix.getcwdb(), *arguments]
    body = b"\0".join(fields) + b"\0\0" + b"\0".join(environment)
    try:
        connection.connect(SOCKET)
        header = pack("!III", len(body), len(fields), len(environment))
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, pack("@3i", 0, 1, 2))
        connection.sendmsg([header], [rights])
        view = memoryview(body)
        while view:
            view = view[connection.send(view) :]
        exit_code, out, err = unpack("!III", _receive(connection, 12))
        streams = ((1, _receive(connection, out)), (2, _receive(connection, err)))
    except OSError:
        posix.write(2, name.encode() + b": the simulated host has gone away\n")
        return 125
    for descriptor, data in streams:
        while data:
            data = data[posix.write(descriptor, data) :]
    return int(exit_code)


if __name__ == "__main__":
    posix._exit(main())
