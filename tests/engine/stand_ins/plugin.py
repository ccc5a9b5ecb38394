"""A provider process under test, driven by the engine's own client, with a state of its own."""

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
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

from engine import urn as urns
from engine.answers import Checked, Comparison, ProviderError
from engine.diff import Changes, Diff
from engine.leash import Leash
from engine.plugins import PluginProcess
from engine.provider import Provider
from engine.state import ResourceState
from engine.values import Values, reveal_all

ROOT = Path(__file__).resolve().parents[3]


class RecordingEngine(engine_pb2_grpc.EngineServicer):
    """Keeps what the provider says."""

    def __init__(self) -> None:
        self.messages: list[engine_pb2.LogRequest] = []

    def Log(self, request, context):
        self.messages.append(request)
        return empty_pb2.Empty()

    def texts(self, severity: str = "") -> list[str]:
        wanted = severity and engine_pb2.LogSeverity.Value(severity)
        return [m.message for m in list(self.messages) if wanted in ("", m.severity)]


@dataclass
class Step:
    """What one resource's turn did: `same`, `create`, `update` or `replace`."""

    op: str
    diff: dict[str, str] = field(default_factory=dict)


@dataclass
class State:
    """One resource as the engine's state has it."""

    id: str
    inputs: Values
    outputs: Values


@dataclass
class Plugin:
    """A provider process and what was made with it, so that steps follow each other."""

    provider: Provider
    engine: RecordingEngine
    pid: int = 0
    let_go: Callable[[], None] = print
    """Does what the engine's death does."""
    state: dict[str, State] = field(default_factory=dict)

    def anew(self) -> Plugin:
        """The same process for another test."""
        return Plugin(self.provider, self.engine)

    def configure(self, **options: Any) -> list[tuple[str, str]]:
        """Check and apply the provider's options; the failures, if any."""
        subject = _subject(urn("pulumi:providers:it", "it"))
        checked = self.provider.check_config(subject, {}, options)
        if not checked.failures:
            self.provider.configure(subject, "", options, {})
            assert self.provider.supports_preview
        return [(f.property, f.reason) for f in checked.failures]

    def _checked(self, urn: str, inputs: Mapping[str, Any], olds: Mapping[str, Any]) -> Checked:
        return self.provider.check(_subject(urn), dict(olds), dict(inputs), seed=b"")

    def check(self, urn: str, inputs: Mapping[str, Any], olds: Mapping[str, Any] = {}) -> Values:
        checked = self._checked(urn, inputs, olds)
        assert not checked.failures, checked.failures
        return checked.inputs

    def failures(self, urn: str, inputs: Mapping[str, Any]) -> dict[str, str]:
        return {f.property: f.reason for f in self._checked(urn, inputs, {}).failures}

    def _compared(self, urn: str, news: Mapping[str, Any], *ignored: str) -> Comparison:
        old = self.state[urn]
        return Comparison(_subject(urn), old.id, old.inputs, old.outputs, dict(news), ignored)

    def changes(self, urn: str, news: Mapping[str, Any]) -> dict[str, str]:
        return _kinds(self.provider.diff(self._compared(urn, news)))

    def create(
        self, urn: str, inputs: Mapping[str, Any], *, preview: bool = False, timeout: float = 0
    ) -> State:
        made = self.provider.create(_subject(urn), dict(inputs), timeout=timeout, preview=preview)
        return self._kept(urn, State(made[0], dict(inputs), made[1]), preview)

    def update(
        self, urn: str, inputs: Mapping[str, Any], *ignored: str, preview: bool = False
    ) -> State:
        wanted = self._compared(urn, inputs, *ignored)
        outputs = self.provider.update(wanted, timeout=0, preview=preview)
        return self._kept(urn, State(wanted.id, dict(inputs), outputs), preview)

    def _kept(self, urn: str, state: State, preview: bool) -> State:
        if not preview:
            self.state[urn] = state
        return state

    def delete(self, urn: str, *, timeout: float = 0) -> None:
        old = self.state[urn]
        kept = {"inputs": old.inputs, "outputs": old.outputs}
        self.provider.delete(_subject(urn), old.id, **kept, timeout=timeout)
        del self.state[urn]

    def read(self, urn: str, id: str = "") -> State | None:
        """Refresh the resource, or with an id import it."""
        old = State(id, {}, {}) if id else self.state[urn]
        found = self.provider.read(_subject(urn), old.id, old.inputs, old.outputs)
        return State(found.id, found.inputs or {}, found.outputs or {}) if found.id else None

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
        diff = self.provider.diff(self._compared(urn, checked))
        if diff.changes is Changes.NONE:
            return Step("same")
        if not diff.replace_keys:
            self.update(urn, checked)
            return Step("update", _kinds(diff))
        fresh = self.check(urn, inputs)
        if diff.delete_before_replace:
            self.delete(urn)
            self.create(urn, fresh)
            return Step("replace-delete-first", _kinds(diff))
        made = self.create(urn, fresh)
        self.state[urn] = old
        self.delete(urn)
        self.state[urn] = made
        return Step("replace", _kinds(diff))

    def outputs(self, urn: str) -> dict[str, Any]:
        """Recorded outputs, secrets uncovered."""
        return reveal_all(self.state[urn].outputs)


def _kinds(diff: Diff) -> dict[str, str]:
    return {path: change.kind for path, change in (diff.detailed or {}).items()}


def _subject(urn: str) -> ResourceState:
    return ResourceState(urn, urns.type_of(urn), custom=True)


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
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    leash.handed_over()
    provider = Provider(PluginProcess(package, process, leash, print))
    try:
        yield Plugin(provider, engine, process.pid, leash.let_go)
    finally:
        provider.close()
        server.stop(0)


def in_background(action: Any) -> tuple[threading.Thread, list[Any]]:
    """Run `action` beside the test; its result or its error ends up in the list."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(action())
        except ProviderError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def urn(token: str, name: str) -> str:
    return f"urn:pulumi:test::project::{token}::{name}"


def kubeconfig(server: str = "https://a:6443", **user: object) -> str:
    return str(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
        }
    )
