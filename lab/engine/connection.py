"""The connection to a provider process: calls, and what it means when they fail."""

from __future__ import annotations

import threading
from typing import Any, cast

import grpc
from google.protobuf import empty_pb2

from lab.engine.answers import NotImplementedByProviderError, ProviderError, error_of
from lab.engine.plugins import PluginError, PluginProcess
from lab.engine.protocol import CHANNEL_OPTIONS, provider_pb2_grpc

_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""What a call ends with when its connection breaks."""
_SILENT = (*_GONE, grpc.StatusCode.DEADLINE_EXCEEDED)
_ANSWER_SECONDS = 5


class Connection:
    """Calls one provider process; connects when it is first called."""

    def __init__(self, process: PluginProcess) -> None:
        self.process = process
        self._channel: grpc.Channel | None = None
        self._stub: Any = None
        self._connecting = threading.Lock()
        self._gone = False

    def call(self, method: str, request: Any) -> Any:
        """The answer to a request.

        Raises:
            NotImplementedByProviderError: the provider does not have this call.
            InitFailedError: the object is there, but did not come up.
            ProviderError: the provider fails, or is gone.
        """
        try:
            return getattr(self._connect(), method)(request)
        except grpc.RpcError as error:
            raise self._translate(method, cast(grpc.Call, error)) from None
        except ValueError:
            # grpc says so of a channel that `close` has closed.
            raise ProviderError(f"the provider for '{self.process.name}' was stopped") from None

    def cancel(self) -> None:
        """Ask the provider to end running calls soon; one that cannot is left alone."""
        try:
            self._connect().Cancel(empty_pb2.Empty(), timeout=1)
        except (grpc.RpcError, ProviderError, PluginError, ValueError):
            # It never served, has ended, or its channel is closed: nothing runs that could be ended.
            return

    def mark_gone(self) -> None:
        """Say that the process is about to be ended: calls that fail now are no news."""
        self._gone = True

    def close(self) -> None:
        """End the process; running calls fail."""
        self.mark_gone()
        self.process.kill()

    # -- below ---------------------------------------------------------------------------

    def _connect(self) -> Any:
        with self._connecting:
            if self._stub is None:
                address = self.process.address()
                self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
                self._stub = provider_pb2_grpc.ResourceProviderStub(self._channel)
            return self._stub

    def _serves(self) -> bool:
        """Whether the provider answers, be it with an error."""
        try:
            self._stub.GetPluginInfo(empty_pb2.Empty(), timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            return cast(grpc.Call, error).code() not in _SILENT
        except ValueError:
            return False  # the channel is closed
        return True

    def _translate(self, method: str, error: grpc.Call) -> ProviderError:
        code, details = error.code(), error.details() or ""
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return NotImplementedByProviderError(
                f"the provider for '{self.process.name}' does not implement {method}: {details}"
            )
        if code in _GONE:
            ended = None if self._gone else self.process.ended(self._serves)
            if self._gone:
                return ProviderError(f"the provider for '{self.process.name}' was stopped")
            if ended is not None:
                return ProviderError(
                    f"the provider for '{self.process.name}' ended with exit code {ended} during"
                    f" {method}{self.process.last_words()}"
                )
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin" and isinstance(value, bytes):
                return error_of(details, value)
        return ProviderError(details or f"{method} failed with {code.name}")
