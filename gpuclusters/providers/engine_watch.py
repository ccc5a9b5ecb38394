"""The end of a provider's process with its engine.

The SDK's process for dynamic providers (`pulumi/dynamic/__main__.py`, SDK 3.272) is told by the engine when
to end, and by nobody when the engine was killed: it would stay for good, and go on with what it was doing on
machines while the next run begins. So a connection to the engine's address, which is the process's one
argument, is held open. It falls in the moment in which the engine's process ends, however that ends, and
where nobody answers any more this process ends at once. Its own connections to machines fall with it, and
with them the locks that it holds there.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

CONNECT_SECONDS = 5.0
PAUSE_SECONDS = 0.5
"""Between two connections. A server drops one on which nobody speaks (gRPC after 120 s)."""
GONE = 1

_started = threading.Lock()


def end_with_engine() -> None:
    """In the SDK's provider process, and only there, end it when its engine does. Cheap when done before."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    # Without an address somebody has started it by hand, for engines that come and go.
    if spec is None or spec.name != "pulumi.dynamic.__main__" or len(sys.argv) < 2:
        return
    host, _, port = sys.argv[1].rpartition(":")
    if not port.isdecimal() or not _started.acquire(blocking=False):
        return
    threading.Thread(
        target=_watch, args=(host, int(port)), name="engine-watch", daemon=True
    ).start()


def _watch(host: str, port: int) -> None:
    while True:
        try:
            with socket.create_connection((host, port), CONNECT_SECONDS) as engine:
                engine.settimeout(None)
                while engine.recv(4096):
                    pass
        except ConnectionRefusedError:
            os._exit(GONE)
        except OSError:
            pass  # reset or timed out: the next attempt says whether anybody is there
        time.sleep(PAUSE_SECONDS)
