"""The end of a provider's process with its engine.

A provider is told by its engine when to end, and by nobody when the engine was killed: it would go on with
what it was doing on machines while the next run begins. So a connection to the engine's address is held
open. It falls in the moment in which the engine's process ends, however that ends, and where nobody answers
any more this process ends at once. Its own connections to machines fall with it, and with them the locks
that it holds there.
"""

from __future__ import annotations

import os
import socket
import threading
import time

CONNECT_SECONDS = 5.0
PAUSE_SECONDS = 0.5
"""Between two connections. A server drops one on which nobody speaks (gRPC after 120 s)."""
GONE = 1


def end_with_engine(address: str) -> None:
    """End this process when nobody answers at the engine's address any more."""
    host, _, port = address.rpartition(":")
    if port.isdecimal():  # else somebody has started it by hand
        watch = threading.Thread(target=_watch, args=(host, int(port)), daemon=True)
        watch.start()


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
