"""Our provider's process, spoken to over gRPC as the engine does."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict
from pulumi.dynamic import ResourceProvider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from tests.fixtures.tables import beside

PROJECT = Path(__file__).resolve().parents[2]
PLUGIN = PROJECT / "gpuclusters/providers/pulumi-resource-gpu-clusters"
_STEP_SECONDS = 900
"""More than any step is given to join."""
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""How the engine writes a value that is not known yet."""

Properties = dict[str, Any]
Kind = type[ResourceProvider] | str
"""A type of resources, by its provider or its name."""
INPUTS = beside(__file__, "inputs.yaml")


def inputs_of(kind: str, host: Any, **changes: Any) -> Properties:
    """Of a resource of this type on a host."""
    return {"connection": host.connection, **INPUTS[kind], **changes}


class StepFailed(Exception):
    """A call failed; the text is what the engine would show."""


@dataclass
class Made:
    """A resource as the engine keeps it."""

    id: str
    outputs: Properties
    inputs: Properties = field(default_factory=dict)
    """As a look finds them."""


@dataclass
class Difference:
    changes: bool
    replaces: list[str]
    delete_before_replace: bool


@dataclass
class ProviderProcess:
    process: subprocess.Popen[str]
    stub: provider_pb2_grpc.ResourceProviderStub
    stderr: Path
    engine: socket.socket
    """Listens at what the process takes for the engine's address."""

    def of(self, kind: Kind, wanted: Properties) -> "Resource":
        """A resource of this kind that is not made yet."""
        return Resource(self, kind, wanted)

    def on(self, kind: str, host: Any, **changes: Any) -> "Resource":
        """One of this type on a host."""
        return self.of(kind, inputs_of(kind, host, **changes))

    def check(self, kind: Kind, news: Properties) -> dict[str, str]:
        """Failures by property; "" as the property of rules about several."""
        answer = self._call("Check", kind, news=news)
        return {f.property: f.reason for f in answer.failures}

    def diff(self, kind: Kind, olds: Properties, news: Properties) -> Difference:
        answer = self._call("Diff", kind, "id", olds=olds, news=news)
        return Difference(
            answer.changes == provider_pb2.DiffResponse.DIFF_SOME,
            list(answer.replaces),
            answer.deleteBeforeReplace,
        )

    def create(self, kind: Kind, news: Properties) -> Made:
        answer = self._call("Create", kind, properties=news)
        return Made(answer.id, MessageToDict(answer.properties))

    def update(self, kind: Kind, made: Made, news: Properties) -> Made:
        answer = self._call("Update", kind, made.id, olds=made.outputs, news=news)
        return Made(made.id, MessageToDict(answer.properties))

    def read(self, kind: Kind, made: Made) -> Made:
        answer = self._call("Read", kind, made.id, properties=made.outputs)
        return Made(answer.id, MessageToDict(answer.properties), MessageToDict(answer.inputs))

    def delete(self, kind: Kind, made: Made) -> None:
        self._call("Delete", kind, made.id, properties=made.outputs)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _call(self, method: str, kind: Kind, *id_: str, **bags: Any) -> Any:
        name = kind if isinstance(kind, str) else kind.__name__.removesuffix("Provider")
        urn = f"urn:pulumi:dev::gpu-clusters::gpu-clusters:gpu:{name}::x"
        known = {"urn": urn, **dict(zip(["id"], id_, strict=False))}
        request = getattr(provider_pb2, f"{method}Request")
        asked = request(**known, **{key: struct(bag) for key, bag in bags.items()})
        try:
            return getattr(self.stub, method)(asked, timeout=_STEP_SECONDS)
        except grpc.RpcError as error:
            raise StepFailed(error.details()) from None


@dataclass
class Resource:
    """One resource of an engine: its inputs, which a call may change, and what was made of them last."""

    process: ProviderProcess
    kind: Kind
    wanted: Properties
    made: Made = field(default_factory=lambda: Made("", {}))

    @property
    def id(self) -> str:
        return self.made.id

    @property
    def outputs(self) -> Properties:
        return self.made.outputs

    def create(self, **changes: Any) -> Properties:
        self.made = self.process.create(self.kind, self.wanted | changes)
        return self.outputs

    def update(self, **changes: Any) -> Properties:
        self.made = self.process.update(self.kind, self.made, self.wanted | changes)
        return self.outputs

    def look(self) -> Made:
        """What a refresh would see; the state stays."""
        return self.process.read(self.kind, self.made)

    def refresh(self) -> Made:
        """Look; the state is what was seen."""
        self.made = self.look()
        return self.made

    def drifted(self) -> Made:
        """What a refresh would see, on which the engine would act; the state stays."""
        seen = self.look()
        assert self.process.diff(self.kind, seen.outputs, self.wanted).changes
        return seen

    def drift(self) -> str:
        """What a refresh would say."""
        found = self.look().outputs["drift"]
        return "; ".join(f"{one['problem']} [{one['code']}]" for one in found)

    def diff(self, **changes: Any) -> Difference:
        return self.process.diff(self.kind, self.outputs, self.wanted | changes)

    def differs(self, **changes: Any) -> bool:
        """Whether the engine would act."""
        return self.diff(**changes).changes

    def delete(self) -> None:
        self.process.delete(self.kind, self.made)

    def refused(self, act: str, *words: str, **changes: Any) -> str:
        """What is said of a `create`, `update` or `delete` that fails, all of these words among it."""
        try:
            getattr(self, act)(**changes)
        except StepFailed as failed:
            said = str(failed)
            assert not [one for one in words if one not in said], said
            return said
        raise AssertionError(f"{act} was done")


def struct(properties: Properties) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(properties)
    return made


@contextmanager
def provider_process(
    stderr: Path, environment: Mapping[str, str] | None = None, config: Properties | None = None
) -> Iterator[ProviderProcess]:
    """A running provider process, configured with the stack's configuration."""
    clean = {
        k: v
        for k, v in os.environ.items()
        if k not in ("SSH_AUTH_SOCK", "GPU_CLUSTERS_SSH_KEY_FILE", "PYTEST_CURRENT_TEST")
    }
    own = [sys.executable, "-m", "tests.providers.serve"]
    program = own if "TEST_PROVIDERS" in (environment or {}) else [str(PLUGIN)]
    # It ends when nobody answers at the engine's address any more.
    engine = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{engine.getsockname()[1]}"
    with stderr.open("a") as said:
        process = subprocess.Popen(
            [*program, address],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=clean | {"PULUMI_RUNTIME_VIRTUALENV": ".venv"} | dict(environment or {}),
        )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            stub.Configure(provider_pb2.ConfigureRequest(args=struct(config or {})))
            yield ProviderProcess(process, stub, stderr, engine)
    finally:
        process.kill()
        process.wait()
        engine.close()
        if process.stdout is not None:
            process.stdout.close()
