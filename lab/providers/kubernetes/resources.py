"""Kubernetes objects as resources: create, read, update and delete against one API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lab.providers import calls, paths
from lab.providers.calls import PartialError, ProviderError
from lab.providers.engine_log import EngineLog
from lab.providers.kubernetes import applying, preview
from lab.providers.kubernetes.applying import Applied, Conflict
from lab.providers.kubernetes.client import Api, ApiError, ApiResource
from lab.providers.kubernetes.importing import inputs_of, refreshed_inputs
from lab.providers.kubernetes.objects import (
    INITIAL_API_VERSION,
    GroupVersionKind,
    Object,
    annotation,
    checkpoint,
    identifier,
    kind_of,
    kind_of_token,
    live_object,
    metadata_of,
    name_of,
    namespace_of,
    parse_identifier,
    recorded_inputs,
    title,
    to_object,
    with_secrets,
)
from lab.providers.kubernetes.options import Options
from lab.providers.kubernetes.waiting import NotReady, Waiter, timeout_seconds
from lab.providers.values import Properties

_SETTLE_SECONDS: Final = (
    5.0  # for a namespace or a definition made a moment ago to be served everywhere
)
_SETTLE_PAUSE_SECONDS: Final = 0.1
_DEFINITION: Final = ("apiextensions.k8s.io", "CustomResourceDefinition")
_PROPAGATION: Final = {"orphan": "Orphan", "background": "Background"}

# Kinds of which `pulumi.com/skipAwait` also skips the wait for their deletion, as in the real provider.
_SKIP_AWAIT_ON_DELETE: Final = frozenset(
    {"Namespace", "Pod", "ReplicationController", "DaemonSet", "Deployment", "StatefulSet", "Job"}
)


@dataclass(frozen=True)
class Resources:
    """Objects of one cluster, as the engine's calls want them."""

    api: Api
    options: Options
    engine: EngineLog
    cancelled: threading.Event
    default_namespace: str
    _recorded: dict[str, str] = field(default_factory=dict)

    @property
    def _waiter(self) -> Waiter:
        return Waiter(self.api, self.cancelled, self.engine)

    def record(self, resource: calls.Resource, id: str) -> None:
        """Remember that the state has `id` for this resource: such an object is no leftover."""
        self._recorded[resource.urn] = id

    def dry_run(self, obj: Object, manager: str) -> Object | None:
        """What applying `obj` would give; None if the server cannot say.

        Raises:
            ApiError: the server refuses a change of a field.
        """
        resource = self.api.find(kind_of(obj))
        if resource is None:
            return None
        obj = self._placed(obj, resource)
        try:
            return applying.apply(self.api, resource, obj, manager, force=True, dry_run=True).live
        except ApiError as error:
            if error.status in (403, 422):
                raise
            return None

    def create(self, call: calls.CreateCall, obj: Object) -> calls.Created:
        """Make the object and wait until it is ready."""
        manager = applying.field_manager(call.resource, {}, obj)
        if call.preview:
            return self._create_preview(call, obj, manager)
        resource = self._settled(kind_of(obj), obj)
        obj = self._placed(obj, resource)
        self._make_way(call.resource, resource, obj)
        self._refuse_foreign(call.resource, resource, obj, manager)
        applied = self._apply_settling(resource, obj, manager)
        live = self._ready(call, resource, applied, obj, manager)
        self.record(call.resource, identifier(live))
        return calls.Created(identifier(live), self._outputs(live, obj, call.inputs, manager))

    def _create_preview(self, call: calls.CreateCall, obj: Object, manager: str) -> calls.Created:
        resource = self.api.find(kind_of(obj))
        if resource is None:
            return calls.Created("", dict(call.inputs))
        obj = self._placed(obj, resource)
        if call.resource.urn not in self._recorded:
            self._refuse_foreign(call.resource, resource, obj, manager)
        try:
            applied = applying.apply(self.api, resource, obj, manager, force=True, dry_run=True)
        except ApiError as error:
            if preview.is_inconclusive(error):
                return calls.Created("", dict(call.inputs))
            raise _refused("be created", obj, error) from error
        self._warn(applied.warnings, call.resource)
        live = preview.of_creation(applied.live, obj)
        return calls.Created("", self._outputs(live, obj, call.inputs, manager))

    def _make_way(self, owner: calls.Resource, resource: ApiResource, obj: Object) -> None:
        """Wait out the deletion of an object of the same name that is still under way."""
        live = self.api.get(resource, namespace_of(obj), name_of(obj))
        if live is not None and metadata_of(live).get("deletionTimestamp"):
            seconds = timeout_seconds(0, obj)
            self._waiter.until_gone(resource, live, seconds=seconds, urn=owner.urn)

    def _refuse_foreign(
        self, owner: calls.Resource, resource: ApiResource, obj: Object, manager: str
    ) -> None:
        """Stop if the name is taken by something this resource did not make.

        An object that carries this resource's field manager and is in no state was left by a create that
        was interrupted: it is taken up again.
        """
        live = self.api.get(resource, namespace_of(obj), name_of(obj))
        if live is None:
            return
        if metadata_of(live).get("deletionTimestamp"):
            self._waiter.until_gone(resource, live, seconds=timeout_seconds(0, obj), urn=owner.urn)
            return
        managers = applying.managers(live)
        leftover = manager in managers and self._recorded.get(owner.urn) != identifier(obj)
        if leftover or self.options.upsert:
            return
        raise ProviderError(
            f"{title(obj)} exists already and was not made by this resource (its fields are managed by "
            f"{', '.join(managers) or 'nobody'}). Import it, give this one another name, or set the "
            "provider option upsertExistingObjects to take it over"
        )

    def update(self, call: calls.UpdateCall, obj: Object) -> Properties:
        """Bring the object to new inputs and wait until it is ready."""
        self.record(call.resource, call.id)
        manager = applying.field_manager(call.resource, call.olds, obj)
        resource = self.api.find(kind_of(obj))
        if resource is None and call.preview:
            return dict(call.news)
        resource = resource or self._settled(kind_of(obj), obj)
        obj = self._placed(obj, resource)
        current = self.api.get(resource, namespace_of(obj), name_of(obj))
        obj = _with_ignored(obj, current, call.ignore_changes)
        if call.preview:
            return self._update_preview(call, resource, obj, manager)
        if current is not None:
            applying.take_over(self.api, resource, current, manager)
        applied = self._apply_settling(resource, obj, manager)
        live = self._ready(call, resource, applied, obj, manager)
        version = str(call.olds.get(INITIAL_API_VERSION) or obj["apiVersion"])
        return self._outputs(live, obj, call.news, manager, version)

    def _update_preview(
        self, call: calls.UpdateCall, resource: ApiResource, obj: Object, manager: str
    ) -> Properties:
        force = applying.forced(obj, always=self.options.patch_force)
        try:
            applied = applying.apply(self.api, resource, obj, manager, force=force, dry_run=True)
        except Conflict as conflict:
            if not conflict.would_be_taken_over:
                raise
            applied = applying.apply(self.api, resource, obj, manager, force=True, dry_run=True)
        except ApiError as error:
            if preview.is_inconclusive(error):
                return dict(call.news)
            raise _refused("be updated", obj, error) from error
        self._warn(applied.warnings, call.resource)
        version = str(call.olds.get(INITIAL_API_VERSION) or obj["apiVersion"])
        return self._outputs(preview.of_update(applied.live), obj, call.news, manager, version)

    def delete(self, call: calls.DeleteCall) -> None:
        """Remove the object and wait until it is gone; absent is done."""
        inputs, recorded = recorded_inputs(call.outputs), live_object(call.outputs)
        namespace, name = parse_identifier(call.id)
        self._recorded.pop(call.resource.urn, None)
        resource = self.api.find(
            kind_of(recorded) if recorded.get("kind") else _kind(call.resource)
        )
        live = self.api.get(resource, namespace, name) if resource else None
        if resource is None or live is None:
            return
        policy = annotation(inputs, "pulumi.com/deletionPropagationPolicy").lower()
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": _PROPAGATION.get(policy, "Foreground"),
        }
        try:
            self.api.request("DELETE", resource.path(namespace, name), body=body)
        except ApiError as error:
            if error.absent:
                return
            if error.status != 409:  # 409: it is being deleted already
                raise _refused("be deleted", live, error) from error
        skips = annotation(inputs, "pulumi.com/skipAwait") == "true"
        if not (skips and live.get("kind") in _SKIP_AWAIT_ON_DELETE):
            seconds = timeout_seconds(call.timeout_seconds, inputs)
            self._waiter.until_gone(resource, live, seconds=seconds, urn=call.resource.urn)
        if (resource.kind.group, resource.kind.kind) == _DEFINITION:
            self._forget_defined(live)

    def read(self, call: calls.ReadCall) -> calls.Found | None:
        """The object as it is, and the inputs that describe it as it is."""
        old_inputs = to_object(call.inputs)
        known = old_inputs if old_inputs.get("kind") else live_object(call.outputs)
        kind = kind_of(known) if known.get("kind") else _kind(call.resource)
        resource = self.api.find(kind)
        namespace, name = parse_identifier(call.id)
        if resource is not None and resource.namespaced:
            namespace = namespace or self.default_namespace
        live = self.api.get(resource, namespace, name) if resource else None
        if live is None:
            return None
        if call.outputs:
            self.record(call.resource, call.id)
        inputs = refreshed_inputs(live, old_inputs) if old_inputs else inputs_of(live)
        manager = applying.field_manager(call.resource, call.outputs, inputs)
        version = str(call.outputs.get(INITIAL_API_VERSION) or live.get("apiVersion"))
        outputs = self._outputs(live, inputs, call.inputs, manager, version)
        return calls.Found(call.id or identifier(live), outputs, with_secrets(inputs, call.inputs))

    def _ready(
        self,
        call: calls.CreateCall | calls.UpdateCall,
        resource: ApiResource,
        applied: Applied,
        obj: Object,
        manager: str,
    ) -> Object:
        self._warn(applied.warnings, call.resource)
        marks = call.inputs if isinstance(call, calls.CreateCall) else call.news
        try:
            live = self._waiter.until_ready(
                resource,
                applied.live,
                seconds=timeout_seconds(call.timeout_seconds, obj),
                urn=call.resource.urn,
            )
        except NotReady as error:
            raise PartialError(
                str(error),
                id=identifier(error.live),
                properties=self._outputs(error.live, obj, marks, manager),
                reasons=error.reasons,
            ) from error
        if (resource.kind.group, resource.kind.kind) == _DEFINITION:
            self._forget_defined(live)
        return live

    def _apply_settling(self, resource: ApiResource, obj: Object, manager: str) -> Applied:
        """Apply, over the moment in which a namespace or definition just made is not served yet."""
        force = applying.forced(obj, always=self.options.patch_force)
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                return applying.apply(self.api, resource, obj, manager, force=force)
            except ApiError as error:
                late = time.monotonic() > deadline or self.cancelled.wait(_SETTLE_PAUSE_SECONDS)
                if not error.absent or late:
                    raise _refused("be applied", obj, error) from error

    def _settled(self, kind: GroupVersionKind, obj: Object) -> ApiResource:
        """Where `kind` lives, over the moment in which a definition just made is not served yet."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            resource = self.api.find(kind)
            if resource is not None:
                return resource
            if time.monotonic() > deadline or self.cancelled.wait(_SETTLE_PAUSE_SECONDS):
                raise ProviderError(
                    f"{title(obj)} cannot be made: the API server knows no {kind}. Make its "
                    "CustomResourceDefinition first (depends_on), or correct apiVersion and kind"
                )

    def _placed(self, obj: Object, resource: ApiResource) -> Object:
        """The object with a namespace if its kind has them, and without one if not."""
        metadata = dict(metadata_of(obj))
        metadata.pop("namespace", None)
        if resource.namespaced:
            metadata["namespace"] = namespace_of(obj) or self.default_namespace
        return {**obj, "metadata": metadata}

    def _outputs(
        self, live: Object, inputs: Object, marks: Properties, manager: str, version: str = ""
    ) -> Properties:
        return checkpoint(
            live, inputs, marks, manager=manager, api_version=version or str(inputs["apiVersion"])
        )

    def _forget_defined(self, definition: Object) -> None:
        self.api.forget(str((definition.get("spec") or {}).get("group", "")))

    def _warn(self, warnings: Sequence[str], owner: calls.Resource) -> None:
        for text in warnings:
            if not (self.options.suppress_deprecation_warnings and "deprecated" in text):
                self.engine.warning(text, owner.urn)


def _kind(resource: calls.Resource) -> GroupVersionKind:
    return kind_of_token(resource.type)


def _refused(what: str, obj: Mapping[str, Any], error: ApiError) -> ProviderError:
    return ProviderError(f"{title(obj)} could not {what}: {error.message}")


def _with_ignored(obj: Object, current: Object | None, ignored: Sequence[str]) -> Object:
    """The object with ignored fields as they are in the cluster, so that applying it changes none."""
    for text in ignored:
        path = paths.parse(text)
        obj = paths.copied(current or {}, obj, path)
    return obj
