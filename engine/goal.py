"""What the program asks for: one registration, taken out of its gRPC message."""

import dataclasses
import pathlib
import re

from google.protobuf import struct_pb2
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from engine.protocol import alias_pb2, resource_pb2
from engine.state import INTERNAL, PROVIDER_TYPE_PREFIX
from engine.values import Asset, Value, Values, walk
from engine.wire import unmarshal, unmarshal_value

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


class GoalError(ValueError):
    """A registration that asks for something this engine cannot do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Goal:
    """A resource as the program wants it. None stands for what was not said."""

    type: str
    name: str
    custom: bool
    parent: str = ""
    inputs: Values = dataclasses.field(default_factory=dict)
    protect: bool | None = None
    dependencies: tuple[str, ...] = ()
    property_dependencies: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    provider: str = ""
    version: str = ""
    plugin_download_url: str = ""
    delete_before_replace: bool | None = None
    ignore_changes: tuple[str, ...] = ()
    replace_on_changes: tuple[str, ...] = ()
    replacement_trigger: Value = None
    additional_secret_outputs: tuple[str, ...] = ()
    aliases: tuple[alias_pb2.Alias, ...] = ()
    """What it was called before: whole URNs, or the parts that were different."""
    custom_timeouts: dict[str, float] = dataclasses.field(default_factory=dict)
    retain_on_delete: bool | None = None
    deleted_with: str = ""
    hide_diff: tuple[str, ...] = ()
    source_position: str = ""

    @property
    def is_provider(self) -> bool:
        return self.type.startswith(PROVIDER_TYPE_PREFIX)

    @property
    def package(self) -> str:
        """The package that the resource, or the provider, belongs to."""
        if self.is_provider:
            return self.type.removeprefix(PROVIDER_TYPE_PREFIX)
        return self.type.split(":", 1)[0]


def from_request(request: resource_pb2.RegisterResourceRequest, root: pathlib.Path) -> Goal:
    """The goal of a `RegisterResource`; source positions are made relative to `root`.

    Raises:
        GoalError: the request asks for something that this engine refuses, named in the message.
    """
    _refuse(request)
    whole = (alias_pb2.Alias(urn=urn) for urn in request.aliasURNs)
    dependencies = {key: tuple(entry.urns) for key, entry in request.propertyDependencies.items()}
    trigger = request.HasField("replacement_trigger")
    return Goal(
        type=request.type,
        name=request.name,
        custom=request.custom,
        parent=request.parent,
        inputs=_inputs(request),
        protect=request.protect if request.HasField("protect") else None,
        dependencies=tuple(request.dependencies),
        property_dependencies=dependencies,
        provider=request.provider,
        version=request.version,
        plugin_download_url=request.pluginDownloadURL,
        delete_before_replace=(
            request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None
        ),
        ignore_changes=tuple(request.ignoreChanges),
        replace_on_changes=tuple(request.replaceOnChanges),
        replacement_trigger=unmarshal_value(request.replacement_trigger) if trigger else None,
        additional_secret_outputs=tuple(request.additionalSecretOutputs),
        aliases=(*request.aliases, *whole),
        custom_timeouts=_timeouts(request.customTimeouts),
        retain_on_delete=request.retainOnDelete if request.HasField("retainOnDelete") else None,
        deleted_with=request.deletedWith,
        hide_diff=tuple(request.hideDiffs),
        source_position=_position(request, root),
    )


def _inputs(request: resource_pb2.RegisterResourceRequest) -> Values:
    """The inputs; those of a provider with the version of its plugin and room for the engine's own settings.

    Both stay in the state, as with Pulumi's own engine (`SetProviderVersion` in its
    `pkg/resource/deploy/providers/registry.go`).
    """
    inputs = read_values(request.object, f"resource '{request.name}' of type {request.type}")
    if not request.type.startswith(PROVIDER_TYPE_PREFIX) or not request.version:
        return inputs
    return {**inputs, INTERNAL: {}, "version": request.version}


def read_values(struct: struct_pb2.Struct, who: str) -> Values:
    """The values that a program sends.

    Raises:
        GoalError: there is an asset or archive among them.
    """
    values = unmarshal(struct)
    if any(isinstance(part, Asset) for value in values.values() for part in walk(value)):
        raise _unsupported(who, "assets or archives")
    return values


def refuse_unknown(message: Message, who: str) -> None:
    """Refuse a request with fields that this engine has never heard of.

    Raises:
        GoalError: there are such fields.
    """
    unknown = UnknownFieldSet(message)
    numbers = sorted({unknown[i].field_number for i in range(len(unknown))})
    if numbers:
        listed = ", ".join(map(str, numbers))
        raise GoalError(
            f"{who} uses an option of a newer Pulumi SDK, which the embedded engine does not know"
            f" (field {listed} of {message.DESCRIPTOR.name}); run this stack with the Pulumi CLI"
        )


def _refuse(request: resource_pb2.RegisterResourceRequest) -> None:
    refuse_unknown(request, f"resource '{request.name}' of type {request.type}")
    refused = {
        "remote components": request.remote,
        "parameterized packages": bool(request.packageRef),
        "resource hooks": bool(request.hooks.ListFields()),
        "state migrations": bool(request.state_migrations),
        "environment variable mappings": bool(request.envVarMappings),
        "replace_with": bool(request.replace_with),
        "transforms": bool(request.transforms),
        "import_": bool(request.importId),
    }
    for what, asked in refused.items():
        if asked:
            raise _unsupported(f"resource '{request.name}' of type {request.type}", what)


def _unsupported(who: str, what: str) -> GoalError:
    return GoalError(
        f"{who} uses {what}, which the embedded engine does not support;"
        " run this stack with the Pulumi CLI"
    )


def _timeouts(message: resource_pb2.RegisterResourceRequest.CustomTimeouts) -> dict[str, float]:
    texts = {"create": message.create, "update": message.update, "delete": message.delete}
    return {key: parse_duration(text) for key, text in texts.items() if text}


def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as `1h30m` or `500ms`.

    Raises:
        GoalError: the text is no duration.
    """
    parts = list(_DURATION.finditer(text))
    if not parts or "".join(p.group() for p in parts) != text:
        raise GoalError(f"{text!r} is no duration; write for example 90s, 5m or 1h30m")
    return sum(float(p.group(1)) * _SECONDS[p.group(2)] for p in parts)


def _position(request: resource_pb2.RegisterResourceRequest, root: pathlib.Path) -> str:
    position = request.sourcePosition
    prefix = f"file://{root.as_posix()}/"
    if not position.uri.startswith(prefix):
        return ""  # a path of this machine has no place in the state
    uri = f"project:///{position.uri.removeprefix(prefix)}"
    if not position.line:
        return uri
    return f"{uri}#{position.line}" + (f",{position.column}" if position.column else "")
