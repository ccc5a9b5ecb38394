"""A provider's process: its port, its signals, its end."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Final

import grpc

from engine.protocol import CHANNEL_OPTIONS, provider_pb2_grpc
from engine.stand_ins import calls
from engine.stand_ins.engine_log import EngineLog
from engine.stand_ins.server import Servicer

_THREADS: Final = 64
_GRACE_SECONDS: Final = 3.0


def start(provider: calls.Provider) -> tuple[grpc.Server, int]:
    """Serve `provider` on a free loopback port; the server and its port."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=_THREADS), options=CHANNEL_OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(provider), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def main(make: Callable[[EngineLog], calls.Provider], arguments: list[str]) -> int:
    """Run one provider until SIGTERM, which also comes when the engine is gone (`engine.leash`).

    The port is the first line on stdout, as the plugin protocol has it; the engine's address is the
    only argument.
    """
    if len(arguments) > 1:
        print(f"usage: one argument, the engine's address (got {arguments})", file=sys.stderr)
        return 2
    provider = make(EngineLog(arguments[0] if arguments else ""))
    server, port = start(provider)
    stopped = threading.Event()
    # Ctrl-C reaches the whole process group; what it means for running steps is the engine's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    print(port, flush=True)
    stopped.wait()
    provider.cancel()
    server.stop(_GRACE_SECONDS).wait(_GRACE_SECONDS)
    provider.close()
    # Worker threads may still sit in a system call; nothing they could do has anyone to answer to.
    sys.stdout.flush()
    os._exit(0)
