"""A provider process under test, driven the way the engine drives it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import (
    engine_pb2,
    engine_pb2_grpc,
    provider_pb2,
    provider_pb2_grpc,
    status_pb2,
)

from engine.leash import Leash
from engine.stand_ins.values import Properties, decode, plain_properties
from engine.wire import marshal

ROOT = Path(__file__).resolve().parents[3]
KINDS = provider_pb2.PropertyDiff.Kind


class StepError(Exception):
    """What a call answered instead of a result; `detail` is the partial state, if there is one."""

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__(error.details())
        self.code = error.code()
        self.detail: provider_pb2.ErrorResourceInitFailed | None = None
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                status = status_pb2.Status.FromString(value)
                self.detail = provider_pb2.ErrorResourceInitFailed()
                status.details[0].Unpack(self.detail)


class RecordingEngine(engine_pb2_grpc.EngineServicer):
    """Keeps what the provider says."""

    def __init__(self) -> None:
        self.messages: list[engine_pb2.LogRequest] = []

    def Log(self, request, context):
        self.messages.append(request)
        return empty_pb2.Empty()

    def texts(self, severity: str = "") -> list[str]:
        return [
            m.message
            for m in list(self.messages)
            if not severity or m.severity == engine_pb2.LogSeverity.Value(severity)
        ]


@dataclass
class Step:
    """What one resource's turn did: `same`, `create`, `update` or `replace`."""

    op: str
    diff: dict[str, str] = field(default_factory=dict)


@dataclass
class State:
    """One resource as the engine's state has it."""

    id: str
    inputs: Properties
    outputs: Properties


class Plugin:
    """A configured provider process, with a state of its own so that steps follow each other."""

    def __init__(
        self, stub: provider_pb2_grpc.ResourceProviderStub, engine: RecordingEngine
    ) -> None:
        self.stub = stub
        self.engine = engine
        self.state: dict[str, State] = {}
        self.pid = 0
        self.let_go: Callable[[], None]
        """Does what the engine's death does."""

    def call(self, method: str, request: Any) -> Any:
        try:
            return getattr(self.stub, method)(request, timeout=280)
        except grpc.RpcError as error:
            raise StepError(error) from None

    def configure(self, **options: Any) -> list[tuple[str, str]]:
        """Check and apply the provider's options; the failures, if any."""
        args = marshal(options)
        checked = self.call("CheckConfig", provider_pb2.CheckRequest(news=args))
        failures = [(f.property, f.reason) for f in checked.failures]
        if not failures:
            request = provider_pb2.ConfigureRequest(
                args=args, acceptSecrets=True, urn="urn:provider"
            )
            answer = self.call("Configure", request)
            assert answer.supportsPreview
        return failures

    def _checked(self, urn: str, inputs: Mapping[str, Any], olds: Mapping[str, Any]) -> Any:
        request = provider_pb2.CheckRequest(urn=urn, olds=marshal(olds), news=marshal(inputs))
        return self.call("Check", request)

    def check(
        self, urn: str, inputs: Mapping[str, Any], olds: Mapping[str, Any] = {}
    ) -> Properties:
        answer = self._checked(urn, inputs, olds)
        assert not answer.failures, answer.failures
        return decode(answer.inputs)

    def failures(self, urn: str, inputs: Mapping[str, Any]) -> dict[str, str]:
        return {f.property: f.reason for f in self._checked(urn, inputs, {}).failures}

    def _known(self, urn: str, outputs: str = "olds") -> dict[str, Any]:
        """What a request says of a resource; its outputs go by different names."""
        old = self.state[urn]
        known = {"urn": urn, "id": old.id, "old_inputs": marshal(old.inputs)}
        return {**known, outputs: marshal(old.outputs)}

    def diff(self, urn: str, news: Mapping[str, Any], ignore: tuple[str, ...] = ()) -> Any:
        request = provider_pb2.DiffRequest(
            **self._known(urn), news=marshal(news), ignoreChanges=list(ignore)
        )
        return self.call("Diff", request)

    def changes(self, urn: str, news: Mapping[str, Any]) -> dict[str, str]:
        return _kinds(self.diff(urn, news))

    def create(
        self, urn: str, inputs: Mapping[str, Any], *, preview: bool = False, timeout: float = 0
    ) -> State:
        request = provider_pb2.CreateRequest(
            urn=urn, properties=marshal(inputs), preview=preview, timeout=timeout
        )
        answer = self.call("Create", request)
        state = State(answer.id, dict(inputs), decode(answer.properties))
        if not preview:
            self.state[urn] = state
        return state

    def update(
        self,
        urn: str,
        inputs: Mapping[str, Any],
        *,
        preview: bool = False,
        timeout: float = 0,
        ignore: tuple[str, ...] = (),
    ) -> State:
        request = provider_pb2.UpdateRequest(
            **self._known(urn),
            news=marshal(inputs),
            preview=preview,
            timeout=timeout,
            ignoreChanges=list(ignore),
        )
        answer = self.call("Update", request)
        state = State(self.state[urn].id, dict(inputs), decode(answer.properties))
        if not preview:
            self.state[urn] = state
        return state

    def delete(self, urn: str, *, timeout: float = 0) -> None:
        known = self._known(urn, "properties")
        self.call("Delete", provider_pb2.DeleteRequest(**known, timeout=timeout))
        del self.state[urn]

    def read(self, urn: str, id: str = "") -> State | None:
        """Refresh the resource, or with an id import it."""
        request = provider_pb2.ReadRequest(urn=urn, id=id)
        if not id:
            old = self.state[urn]
            request = provider_pb2.ReadRequest(
                urn=urn, id=old.id, properties=marshal(old.outputs), inputs=marshal(old.inputs)
            )
        answer = self.call("Read", request)
        if not answer.id:
            return None
        return State(answer.id, decode(answer.inputs), decode(answer.properties))

    def refresh(self, urn: str) -> dict[str, str]:
        """Take the live state over, as `refresh` does; what it shows as changed."""
        news = self.state[urn].inputs
        found = self.read(urn)
        assert found is not None
        self.state[urn] = found
        return self.changes(urn, news)

    def up(self, urn: str, inputs: Mapping[str, Any]) -> Step:
        """One resource's turn in an `up`: check, diff, and what follows from it."""
        old = self.state.get(urn)
        if old is None:
            self.create(urn, self.check(urn, inputs))
            return Step("create")
        checked = self.check(urn, inputs, old.inputs)
        answer = self.diff(urn, checked)
        diff = _kinds(answer)
        if answer.changes == provider_pb2.DiffResponse.DIFF_NONE:
            return Step("same")
        if not answer.replaces:
            self.update(urn, checked)
            return Step("update", diff)
        fresh = self.check(urn, inputs)
        if answer.deleteBeforeReplace:
            self.delete(urn)
            self.create(urn, fresh)
            return Step("replace-delete-first", diff)
        self.create(urn, fresh)
        replaced, self.state[urn] = self.state[urn], old
        self.delete(urn)
        self.state[urn] = replaced
        return Step("replace", diff)

    def outputs(self, urn: str) -> Properties:
        """Recorded outputs, secrets uncovered."""
        return plain_properties(self.state[urn].outputs)


def _kinds(answer: Any) -> dict[str, str]:
    return {path: KINDS.Name(change.kind) for path, change in answer.detailedDiff.items()}


@contextmanager
def running(package: str, **environment: str) -> Iterator[Plugin]:
    """A provider process as the engine starts it, not configured yet; gone at the end."""
    engine = RecordingEngine()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    leash = Leash()
    process = subprocess.Popen(
        leash.command([sys.executable], f"engine.stand_ins.{package}", address),
        pass_fds=(leash.end,),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    leash.handed_over()
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            plugin = Plugin(provider_pb2_grpc.ResourceProviderStub(channel), engine)
            plugin.pid = process.pid
            plugin.let_go = leash.let_go
            yield plugin
    finally:
        process.kill()
        process.wait()
        leash.let_go()
        server.stop(0)


def in_background(action: Any) -> tuple[threading.Thread, list[Any]]:
    """Run `action` beside the test; its result or its error ends up in the list."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(action())
        except StepError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def urn(token: str, name: str) -> str:
    return f"urn:pulumi:test::project::{token}::{name}"
