"""Messages to the engine, which shows them beside the resource they are about."""

import contextlib
from typing import Final

import grpc
from google.protobuf import empty_pb2

from engine.protocol import engine_pb2, engine_pb2_grpc

_DEADLINE_SECONDS: Final = 60


class EngineLog:
    """Sends messages to the engine at `address`; without an address, or when it is gone, they are dropped.

    A message lost must never fail the operation it is about, so an unreachable engine is not an error here.
    """

    def __init__(self, address: str) -> None:
        self._stub: engine_pb2_grpc.EngineStub | None = None
        self.attach(address)

    def attach(self, address: str) -> None:
        """Send from now on to `address`."""
        if address:
            self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(address))

    def debug(self, message: str, urn: str = "") -> None:
        self._send(engine_pb2.DEBUG, message, urn)

    def info(self, message: str, urn: str = "") -> None:
        self._send(engine_pb2.INFO, message, urn)

    def warning(self, message: str, urn: str = "") -> None:
        self._send(engine_pb2.WARNING, message, urn)

    def _send(self, severity: engine_pb2.LogSeverity.ValueType, message: str, urn: str) -> None:
        if self._stub is None:
            return
        request = engine_pb2.LogRequest(severity=severity, message=message, urn=urn)
        with contextlib.suppress(grpc.RpcError):
            answer: empty_pb2.Empty = self._stub.Log(request, timeout=_DEADLINE_SECONDS)
            del answer
