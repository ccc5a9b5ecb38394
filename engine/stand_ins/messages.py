"""Between the engine's messages and the calls of a provider."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from google.protobuf import any_pb2, struct_pb2

from engine.protocol import provider_pb2, status_pb2
from engine.stand_ins import calls
from engine.stand_ins.values import Properties, contains_unknown, decode, plain_properties


def check_call(request: provider_pb2.CheckRequest) -> calls.CheckCall:
    """What `Check` asks."""
    modes = provider_pb2.CheckRequest.AutonamingOptions
    return calls.CheckCall(
        calls.Resource(request.urn),
        decode(request.olds),
        decode(request.news),
        request.randomSeed,
        request.autonaming.proposed_name,
        not request.HasField("autonaming") or request.autonaming.mode != modes.DISABLE,
    )


def diff_call(request: provider_pb2.DiffRequest) -> calls.DiffCall:
    """What `Diff` asks."""
    return calls.DiffCall(
        calls.Resource(request.urn),
        request.id,
        decode(request.olds),
        decode(request.news),
        decode(request.old_inputs),
        tuple(request.ignoreChanges),
    )


def create_call(request: provider_pb2.CreateRequest) -> calls.CreateCall:
    """What `Create` asks."""
    return calls.CreateCall(
        calls.Resource(request.urn),
        decode(request.properties),
        request.timeout,
        request.preview,
    )


def update_call(request: provider_pb2.UpdateRequest) -> calls.UpdateCall:
    """What `Update` asks."""
    return calls.UpdateCall(
        calls.Resource(request.urn),
        request.id,
        decode(request.olds),
        decode(request.news),
        decode(request.old_inputs),
        request.timeout,
        tuple(request.ignoreChanges),
        request.preview,
    )


def delete_call(request: provider_pb2.DeleteRequest) -> calls.DeleteCall:
    """What `Delete` asks."""
    return calls.DeleteCall(
        calls.Resource(request.urn),
        request.id,
        decode(request.properties),
        decode(request.old_inputs),
        request.timeout,
    )


def read_call(request: provider_pb2.ReadRequest) -> calls.ReadCall:
    """What `Read` asks."""
    return calls.ReadCall(
        calls.Resource(request.urn),
        request.id,
        decode(request.properties),
        decode(request.inputs),
    )


def options(package: str, request: provider_pb2.ConfigureRequest) -> Properties:
    """Provider options: `args` where the engine sends them, else the older `PACKAGE:config:KEY` variables."""
    options = plain_properties(decode(request.args))
    if not options:
        prefix = f"{package}:config:"
        options = {key.removeprefix(prefix): value for key, value in request.variables.items()}
    options.pop("version", None)
    options.pop("pluginDownloadURL", None)
    if contains_unknown(options):
        names = ", ".join(key for key, value in options.items() if contains_unknown(value))
        raise calls.ProviderError(f"provider options are not known yet: {names}")
    return options


def diffed(diff: calls.Diff) -> provider_pb2.DiffResponse:
    """The answer to `Diff` and `DiffConfig`."""
    changed = bool(diff.changes)
    answer = provider_pb2.DiffResponse
    return answer(
        changes=answer.DIFF_SOME if changed else answer.DIFF_NONE,
        replaces=diff.replaces,
        diffs=sorted({path.split(".", 1)[0].split("[", 1)[0] for path in diff.changes}),
        deleteBeforeReplace=diff.delete_before_replace,
        detailedDiff={
            path: provider_pb2.PropertyDiff(
                kind=provider_pb2.PropertyDiff.Kind.Value(kind.value), inputDiff=diff.input_diff
            )
            for path, kind in diff.changes.items()
        },
        hasDetailedDiff=True,
    )


def checked(
    inputs: struct_pb2.Struct, failures: Sequence[calls.Failure]
) -> provider_pb2.CheckResponse:
    """The answer to `Check` and `CheckConfig`."""
    return provider_pb2.CheckResponse(
        inputs=inputs,
        failures=[
            provider_pb2.CheckFailure(property=failure.property, reason=failure.reason)
            for failure in failures
        ],
    )


def partial_state(
    error: calls.PartialError, properties: struct_pb2.Struct, message: str, reasons: Sequence[str]
) -> bytes:
    """The details of an error after which something is there: a `google.rpc.Status` for the trailer."""
    detail = any_pb2.Any()
    detail.Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=error.id, properties=properties, reasons=list(reasons)
        )
    )
    code = grpc.StatusCode.UNKNOWN.value[0]
    return status_pb2.Status(code=code, message=message, details=[detail]).SerializeToString()
