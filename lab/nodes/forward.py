"""A port of this machine that leads to an address in a node's network, such as a pod's.

The machine has no route to pods: two labs may use the same ranges. The node dials for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

from lab.control_plane.ports import LOOPBACK
from lab.nodes.folder import DIAL


@contextlib.contextmanager
def forwarded(node: Path, address: str, port: int) -> Iterator[int]:
    """Carry connections until the end of the block; gives the port on loopback.

    `node` is the folder of a running node. A connection that the node cannot make is closed.
    """
    directory = os.open(node, os.O_PATH)
    # The path of a socket is short; that of a node's folder may be long.
    near = f"/proc/self/fd/{directory}/{DIAL}"

    class Carrier(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as far, contextlib.suppress(OSError):
                far.connect(near)
                far.sendall(f"{address} {port}\n".encode())
                back = threading.Thread(target=_pump, args=(far, self.request), daemon=True)
                back.start()
                _pump(self.request, far)
                back.join()

    with socketserver.ThreadingTCPServer((LOOPBACK, 0), Carrier) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
            os.close(directory)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        with source.makefile("rb", 0) as reading, sink.makefile("wb", 0) as writing:
            shutil.copyfileobj(reading, writing, 1 << 16)
        sink.shutdown(socket.SHUT_WR)
