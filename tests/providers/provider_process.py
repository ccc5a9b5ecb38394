"""Our provider's process, spoken to over gRPC as the engine does."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict
from pulumi.dynamic import ResourceProvider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

PROJECT = Path(__file__).resolve().parents[2]
PLUGIN = PROJECT / "gpuclusters/providers/pulumi-resource-gpu-clusters"
_STEP_SECONDS = 900
"""More than any step is given to join."""
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""How the engine writes a value that is not known yet."""

Properties = dict[str, Any]


class StepFailed(Exception):
    """A call failed; the text is what the engine would show."""


@dataclass
class Made:
    """A resource as the engine keeps it."""

    id: str
    outputs: Properties


@dataclass
class Difference:
    changes: bool
    replaces: list[str]
    delete_before_replace: bool


@dataclass
class Read:
    id: str
    outputs: Properties
    inputs: Properties


@dataclass
class ProviderProcess:
    process: subprocess.Popen[str]
    stub: provider_pb2_grpc.ResourceProviderStub
    stderr: Path
    engine: socket.socket
    """Listens at what the process takes for the engine's address."""

    def check(self, kind: type[ResourceProvider], news: Properties) -> dict[str, str]:
        """Failures by property; "" as the property of rules about several."""
        answer = self._call(
            "Check", provider_pb2.CheckRequest(urn=_urn(kind), olds=None, news=_struct(news))
        )
        return {f.property: f.reason for f in answer.failures}

    def diff(self, kind: type[ResourceProvider], olds: Properties, news: Properties) -> Difference:
        answer = self._call(
            "Diff",
            provider_pb2.DiffRequest(
                urn=_urn(kind), id="id", olds=_struct(olds), news=_struct(news)
            ),
        )
        return Difference(
            answer.changes == provider_pb2.DiffResponse.DIFF_SOME,
            list(answer.replaces),
            answer.deleteBeforeReplace,
        )

    def create(self, kind: type[ResourceProvider], news: Properties) -> Made:
        answer = self._call(
            "Create", provider_pb2.CreateRequest(urn=_urn(kind), properties=_struct(news))
        )
        return Made(answer.id, _plain(answer.properties))

    def update(self, kind: type[ResourceProvider], made: Made, news: Properties) -> Made:
        answer = self._call(
            "Update",
            provider_pb2.UpdateRequest(
                urn=_urn(kind), id=made.id, olds=_struct(made.outputs), news=_struct(news)
            ),
        )
        return Made(made.id, _plain(answer.properties))

    def read(self, kind: type[ResourceProvider], made: Made) -> Read:
        answer = self._call(
            "Read",
            provider_pb2.ReadRequest(urn=_urn(kind), id=made.id, properties=_struct(made.outputs)),
        )
        return Read(answer.id, _plain(answer.properties), _plain(answer.inputs))

    def delete(self, kind: type[ResourceProvider], made: Made) -> None:
        self._call(
            "Delete",
            provider_pb2.DeleteRequest(
                urn=_urn(kind), id=made.id, properties=_struct(made.outputs)
            ),
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _call(self, method: str, request: Any) -> Any:
        try:
            return getattr(self.stub, method)(request, timeout=_STEP_SECONDS)
        except grpc.RpcError as error:
            raise StepFailed(error.details()) from None


def _urn(kind: type[ResourceProvider]) -> str:
    return f"urn:pulumi:dev::gpu-clusters::gpu-clusters:gpu:{kind.__name__.removesuffix('Provider')}::x"


def _struct(properties: Properties) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(properties)
    return struct


def _plain(struct: struct_pb2.Struct) -> Properties:
    return MessageToDict(struct)


def _program(environment: Mapping[str, str]) -> list[str]:
    own = [sys.executable, "-m", "tests.providers.serve"]
    return own if "TEST_PROVIDERS" in environment else [str(PLUGIN)]


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
    # It ends when nobody answers at the engine's address any more.
    engine = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{engine.getsockname()[1]}"
    with stderr.open("a") as said:
        process = subprocess.Popen(
            [*_program(environment or {}), address],
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
            args = struct_pb2.Struct()
            args.update(config or {})
            stub.Configure(provider_pb2.ConfigureRequest(args=args))
            yield ProviderProcess(process, stub, stderr, engine)
    finally:
        process.kill()
        process.wait()
        engine.close()
        if process.stdout is not None:
            process.stdout.close()
