"""The state of a stack: its resources, as the checkpoint (version 3) of Pulumi stores them."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import operator
import re
from collections.abc import Mapping
from typing import Any

from engine.values import (
    Decrypt,
    Encrypt,
    SecretForm,
    Value,
    Values,
    encrypted,
    from_state,
    to_state,
    values_from_state,
    values_to_state,
)

VERSION = "v3.272.0"
"""The release of Pulumi whose state this engine writes; it stands in the manifest."""

PROVIDER_TYPE_PREFIX = "pulumi:providers:"
INTERNAL = "__internal"
"""An input of providers whose plugin has a version; it never reaches the provider."""
STACK_TYPE = "pulumi:pulumi:Stack"


class StateError(ValueError):
    """A checkpoint that cannot be understood."""


@dataclasses.dataclass(eq=False, slots=True)
class ResourceState:
    """One resource as the engine knows it.

    States are compared by identity: during a replacement two of them have the same URN. Fields
    are those of Pulumi's `ResourceV3`; `extra` keeps those that this engine does not know.
    Timeouts are in seconds.
    """

    urn: str
    type: str
    custom: bool
    id: str = ""
    delete: bool = False
    inputs: Values = dataclasses.field(default_factory=dict)
    outputs: Values = dataclasses.field(default_factory=dict)
    parent: str = ""
    protect: bool = False
    dependencies: tuple[str, ...] = ()
    init_errors: tuple[str, ...] = ()
    provider: str = ""
    property_dependencies: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    pending_replacement: bool = False
    additional_secret_outputs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    custom_timeouts: dict[str, float] = dataclasses.field(default_factory=dict)
    import_id: str = ""
    retain_on_delete: bool = False
    deleted_with: str = ""
    replace_with: tuple[str, ...] = ()
    created: str = ""
    modified: str = ""
    source_position: str = ""
    ignore_changes: tuple[str, ...] = ()
    hide_diff: tuple[str, ...] = ()
    replace_on_changes: tuple[str, ...] = ()
    replacement_trigger: Value = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.urn.split("::", 3)[-1]

    @property
    def is_provider(self) -> bool:
        return self.type.startswith(PROVIDER_TYPE_PREFIX)

    @property
    def is_real(self) -> bool:
        """Whether there is an object outside of the state: not for components and providers."""
        return self.custom and not self.is_provider

    def copy(self) -> ResourceState:
        """The state as it is now; values are shared, as nobody changes them."""
        return ResourceState(*_everything(self))

    def says_the_same(self, other: ResourceState) -> bool:
        """Whether writing the other state instead of this one would change nothing."""
        return _everything(self) == _everything(other)

    def to_json(self, form: SecretForm) -> dict[str, Any]:
        """The resource as it stands in a checkpoint; empty fields are left out."""
        document: dict[str, Any] = {"urn": self.urn, "custom": self.custom}
        for key, attribute in _FIELDS.items():
            value = getattr(self, attribute)
            if not value and key != "type":
                continue
            if key in ("inputs", "outputs"):
                value = values_to_state(value, form)
            elif key == "propertyDependencies":
                value = {k: list(value[k]) or None for k in sorted(value)}
            elif key == "customTimeouts":
                value = {k: _number(v) for k, v in value.items()}
            elif isinstance(value, tuple):
                value = list(value)
            document[key] = value
        if self.replacement_trigger is not None:
            document["replacementTrigger"] = to_state(self.replacement_trigger, form)
        return {**document, **self.extra}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], decrypt: Decrypt) -> ResourceState:
        """A resource of a checkpoint.

        Raises:
            StateError: a field that every resource has is missing.
        """
        try:
            state = cls(document["urn"], document["type"], bool(document.get("custom")))
        except KeyError as error:
            raise StateError(f"a resource of the state has no field {error}: {document}") from None
        for key, value in document.items():
            attribute = _FIELDS.get(key)
            if key in ("urn", "type", "custom") or value is None:
                continue
            if key == "replacementTrigger":
                state.replacement_trigger = from_state(value, decrypt)
            elif attribute is None:
                state.extra[key] = value
            elif key in ("inputs", "outputs"):
                setattr(state, attribute, values_from_state(value, decrypt))
            elif key == "propertyDependencies":
                state.property_dependencies = {k: tuple(v or ()) for k, v in value.items()}
            else:
                setattr(state, attribute, tuple(value) if isinstance(value, list) else value)
        return state


# Each resource of a run is copied several times: `dataclasses.replace` takes ten times as long.
_everything = operator.attrgetter(*(field.name for field in dataclasses.fields(ResourceState)))


# Keys of a checkpoint and the attributes that hold them, in the order in which Pulumi writes them.
_FIELDS = {
    key: re.sub("(?<=[a-z])([A-Z]+)", lambda capitals: f"_{capitals[0].lower()}", key)
    for key in (
        *("delete", "id", "type", "inputs", "outputs", "parent", "protect", "dependencies"),
        *("initErrors", "provider", "propertyDependencies", "pendingReplacement"),
        *("additionalSecretOutputs", "aliases", "customTimeouts", "importID", "retainOnDelete"),
        *("deletedWith", "replaceWith", "created", "modified", "sourcePosition"),
        *("ignoreChanges", "hideDiff", "replaceOnChanges"),
    )
}


@dataclasses.dataclass(frozen=True, slots=True)
class PendingOperation:
    """Something that was about to be done to a resource when the state was written.

    `type` is `creating`, `updating`, `deleting`, `reading` or `importing`; `extra` keeps fields
    that this engine does not know.
    """

    resource: ResourceState
    type: str
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self, form: SecretForm) -> dict[str, Any]:
        """The operation as it stands in a checkpoint."""
        return {"resource": self.resource.to_json(form), "type": self.type, **self.extra}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], decrypt: Decrypt) -> PendingOperation:
        """An operation of a checkpoint.

        Raises:
            StateError: a field that every operation has is missing.
        """
        try:
            resource, kind = document["resource"], document["type"]
        except KeyError as error:
            raise StateError(f"a pending operation has no field {error}") from None
        extra = {k: v for k, v in document.items() if k not in ("resource", "type")}
        return cls(ResourceState.from_json(resource, decrypt), kind, extra)


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a checkpoint says, in its order.

    `secrets_providers` is how the backend encrypts (`{"type": "passphrase", "state": {...}}`).
    """

    resources: tuple[ResourceState, ...] = ()
    pending_operations: tuple[PendingOperation, ...] = ()
    secrets_providers: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    manifest: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_checkpoint(self, encrypt: Encrypt) -> dict[str, Any]:
        """The `latest` of a checkpoint file, secrets encrypted, manifest renewed."""
        manifest = new_manifest(self.manifest)
        return dataclasses.replace(self, manifest=manifest).to_json(encrypted(encrypt))

    def to_json(self, form: SecretForm) -> dict[str, Any]:
        """The deployment with its manifest as it was, secrets written in the given form."""
        document: dict[str, Any] = {"manifest": dict(self.manifest or _no_manifest())}
        if self.secrets_providers is not None:
            document["secrets_providers"] = dict(self.secrets_providers)
        if self.resources:
            document["resources"] = [r.to_json(form) for r in self.resources]
        if self.pending_operations:
            document["pending_operations"] = [op.to_json(form) for op in self.pending_operations]
        return {**document, "metadata": dict(self.metadata), **self.extra}

    @classmethod
    def from_checkpoint(cls, document: Mapping[str, Any], decrypt: Decrypt) -> Snapshot:
        """Reads the `latest` of a checkpoint file or the `deployment` of an export.

        Raises:
            StateError: a resource lacks what every resource has.
            ValueError: a secret cannot be opened or a value not be understood.
        """
        known = ("manifest", "secrets_providers", "resources", "pending_operations", "metadata")
        return cls(
            resources=tuple(
                ResourceState.from_json(r, decrypt) for r in document.get("resources") or ()
            ),
            pending_operations=tuple(
                PendingOperation.from_json(op, decrypt)
                for op in document.get("pending_operations") or ()
            ),
            secrets_providers=document.get("secrets_providers"),
            metadata=document.get("metadata") or {},
            manifest=document.get("manifest"),
            extra={k: v for k, v in document.items() if k not in known},
        )


def new_manifest(old: Mapping[str, Any] | None) -> dict[str, Any]:
    """Who writes a checkpoint and when; what else stood in the old manifest is kept."""
    return {**(old or {}), "time": _now(), "magic": _magic(VERSION), "version": VERSION}


def _number(seconds: float) -> float:
    return int(seconds) if float(seconds).is_integer() else seconds


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")


def _magic(version: str) -> str:
    return hashlib.sha256(version.encode()).hexdigest()


def _no_manifest() -> dict[str, Any]:
    return {"time": "0001-01-01T00:00:00Z", "magic": "", "version": ""}
