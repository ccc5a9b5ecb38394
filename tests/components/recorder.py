"""A stand-in for the engine that writes down what a component registers."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pulumi
from pulumi.runtime.proto.source_pb2 import StackTrace
from pulumi.runtime.settings import SETTINGS, set_root_resource

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"


def _shown(value: Any) -> Any:
    """The value with secrets opened."""
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET:
            return _shown(value["value"])
        return {key: _shown(inner) for key, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Registered:
    """One resource as it reached the engine."""

    type: str
    name: str
    inputs: dict[str, Any]


@dataclass
class Recorder(pulumi.runtime.Mocks):
    """Answers every registration with its own inputs, so outputs that are inputs are known."""

    seen: list[Registered] = field(default_factory=list)

    def new_resource(
        self, args: pulumi.runtime.MockResourceArgs
    ) -> tuple[str | None, dict[Any, Any]]:
        self.seen.append(Registered(args.typ, args.name, _shown(dict(args.inputs))))
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[Any, Any]:
        raise AssertionError(f"components call no functions of providers (got {args.token})")

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """Inputs by name of all resources whose type ends so."""
        return {r.name: r.inputs for r in self.seen if r.type.endswith(kind)}

    def types(self) -> list[str]:
        """Types in order of their names."""
        return sorted(r.type for r in self.seen)


def record(declare: Callable[[], object], *, preview: bool = False) -> Recorder:
    """Run a declaration to its end, every registration answered, and give what was registered."""
    recorder = Recorder()
    _have_a_loop()
    pulumi.runtime.set_mocks(recorder, project="gpu-clusters", stack="test", preview=preview)
    # Where in the source each resource was declared is for an engine; below a test, that are sixty
    # frames of a test runner for each resource, a quarter of all the time.
    with patch("pulumi.runtime.resource._get_stack_trace", StackTrace):
        pulumi.runtime.test(declare)()
    return recorder


def _have_a_loop() -> None:
    """Pulumi's mocks want the event loop of the main thread, which a test before may have taken away."""
    try:
        asyncio.get_event_loop_policy().get_event_loop()
    except RuntimeError:
        asyncio.set_event_loop(asyncio.new_event_loop())


@contextmanager
def own_event_loop() -> Iterator[None]:
    """For a test, and for what declares in a fixture of a module, before the loop of any test is there."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        for task in (left := asyncio.all_tasks(loop)):
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        # The next declaration would wait for these outputs, in another loop, and for the children of a root
        # resource that was never registered.
        SETTINGS.outputs.clear()
        set_root_resource(None)
        asyncio.set_event_loop(None)
        loop.close()
