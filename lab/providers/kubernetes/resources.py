"""Kubernetes objects as resources: create, read, update and delete against one API server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lab.providers import calls, paths
from lab.providers.calls import ProviderError
from lab.providers.kubernetes import applying, preview
from lab.providers.kubernetes.applying import Conflict
from lab.providers.kubernetes.client import ApiError, ApiResource
from lab.providers.kubernetes.importing import inputs_of, refreshed_inputs
from lab.providers.kubernetes.objects import (
    INITIAL_API_VERSION,
    GroupVersionKind,
    Object,
    annotation,
    identifier,
    is_patch,
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
from lab.providers.kubernetes.store import Store, outputs, refused
from lab.providers.kubernetes.waiting import timeout_seconds
from lab.providers.values import Properties

_PROPAGATION: Final = {"orphan": "Orphan", "background": "Background"}

# Kinds of which `pulumi.com/skipAwait` also skips the wait for their deletion, as in the real provider.
_SKIP_AWAIT_ON_DELETE: Final = frozenset(
    {"Namespace", "Pod", "ReplicationController", "DaemonSet", "Deployment", "StatefulSet", "Job"}
)


@dataclass(frozen=True)
class Resources:
    """Objects of one cluster, as the engine's calls want them."""

    store: Store
    _recorded: dict[str, str] = field(default_factory=dict)

    def record(self, resource: calls.Resource, id: str) -> None:
        """Remember that the state has `id` for this resource: such an object is no leftover."""
        self._recorded[resource.urn] = id

    def dry_run(self, obj: Object, manager: str) -> Object | None:
        """What applying `obj` would give; None if the server cannot say.

        Raises:
            ApiError: the server refuses a change of a field.
        """
        resource = self.store.api.find(kind_of(obj))
        if resource is None:
            return None
        obj = self.store.placed(obj, resource)
        try:
            return applying.apply(
                self.store.api, resource, obj, manager, force=True, dry_run=True
            ).live
        except ApiError as error:
            if error.status in (403, 422):
                raise
            return None

    def create(self, call: calls.CreateCall, obj: Object) -> calls.Created:
        """Make the object and wait until it is ready."""
        manager = applying.field_manager(call.resource, {}, obj)
        if call.preview:
            return self._create_preview(call, obj, manager)
        resource = self.store.located(kind_of(obj), obj)
        obj = self.store.placed(obj, resource)
        if not is_patch(call.resource.type, obj):
            self._make_way(call.resource, resource, obj)
            self._refuse_foreign(call.resource, resource, obj, manager)
        applied = self.store.apply(resource, obj, manager)
        live = self.store.ready(call, resource, applied, obj, manager)
        self.record(call.resource, identifier(live))
        return calls.Created(identifier(live), outputs(live, obj, call.inputs, manager))

    def _create_preview(self, call: calls.CreateCall, obj: Object, manager: str) -> calls.Created:
        resource = self.store.api.find(kind_of(obj))
        if resource is None or is_patch(call.resource.type, obj):
            return calls.Created("", dict(call.inputs))
        obj = self.store.placed(obj, resource)
        if self._recorded.get(call.resource.urn) != identifier(obj):
            self._refuse_foreign(call.resource, resource, obj, manager)
        try:
            applied = applying.apply(
                self.store.api, resource, obj, manager, force=True, dry_run=True
            )
        except ApiError as error:
            if preview.is_inconclusive(error):
                return calls.Created("", dict(call.inputs))
            raise refused("be created", obj, error) from error
        self.store.warn(applied.warnings, call.resource)
        live = preview.of_creation(applied.live, obj)
        return calls.Created("", outputs(live, obj, call.inputs, manager))

    def _make_way(self, owner: calls.Resource, resource: ApiResource, obj: Object) -> None:
        """Wait out the deletion of an object of the same name that is still under way."""
        live = self.store.api.get(resource, namespace_of(obj), name_of(obj))
        if live is not None and metadata_of(live).get("deletionTimestamp"):
            seconds = timeout_seconds(0, obj)
            self.store.waiter.until_gone(resource, live, seconds=seconds, urn=owner.urn)

    def _refuse_foreign(
        self, owner: calls.Resource, resource: ApiResource, obj: Object, manager: str
    ) -> None:
        """Stop if the name is taken by something this resource did not make.

        An object that carries this resource's field manager and is in no state was left by a create that
        was interrupted: it is taken up again.
        """
        live = self.store.api.get(resource, namespace_of(obj), name_of(obj))
        if live is None or metadata_of(live).get("deletionTimestamp"):
            return
        managers = applying.managers(live)
        leftover = manager in managers and self._recorded.get(owner.urn) != identifier(obj)
        if leftover or self.store.options.upsert:
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
        resource = self.store.api.find(kind_of(obj))
        if resource is None and call.preview:
            return dict(call.news)
        resource = resource or self.store.located(kind_of(obj), obj)
        obj = self.store.placed(obj, resource)
        current = self.store.api.get(resource, namespace_of(obj), name_of(obj))
        obj = _with_ignored(obj, current, call.ignore_changes)
        if call.preview:
            return self._update_preview(call, resource, obj, manager)
        if current is not None and not is_patch(call.resource.type, obj):
            applying.take_over(self.store.api, resource, current, manager)
        applied = self.store.apply(resource, obj, manager)
        live = self.store.ready(call, resource, applied, obj, manager)
        version = str(call.olds.get(INITIAL_API_VERSION) or obj["apiVersion"])
        return outputs(live, obj, call.news, manager, version)

    def _update_preview(
        self, call: calls.UpdateCall, resource: ApiResource, obj: Object, manager: str
    ) -> Properties:
        force = applying.forced(obj, always=self.store.options.patch_force)
        try:
            applied = applying.apply(
                self.store.api, resource, obj, manager, force=force, dry_run=True
            )
        except Conflict as conflict:
            if not conflict.would_be_taken_over:
                raise
            applied = applying.apply(
                self.store.api, resource, obj, manager, force=True, dry_run=True
            )
        except ApiError as error:
            if preview.is_inconclusive(error):
                return dict(call.news)
            raise refused("be updated", obj, error) from error
        self.store.warn(applied.warnings, call.resource)
        version = str(call.olds.get(INITIAL_API_VERSION) or obj["apiVersion"])
        return outputs(preview.of_update(applied.live), obj, call.news, manager, version)

    def delete(self, call: calls.DeleteCall) -> None:
        """Remove the object and wait until it is gone; absent is done."""
        inputs, recorded = recorded_inputs(call.outputs), live_object(call.outputs)
        namespace, name = parse_identifier(call.id)
        self._recorded.pop(call.resource.urn, None)
        resource = self.store.api.find(
            kind_of(recorded) if recorded.get("kind") else _kind(call.resource)
        )
        live = self.store.api.get(resource, namespace, name) if resource else None
        if resource is None or live is None:
            return
        if is_patch(call.resource.type, recorded):
            self._let_go(call, resource, live, inputs)
            return
        policy = annotation(inputs, "pulumi.com/deletionPropagationPolicy").lower()
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": _PROPAGATION.get(policy, "Foreground"),
        }
        try:
            self.store.api.request("DELETE", resource.path(namespace, name), body=body)
        except ApiError as error:
            if error.absent:
                return
            if error.status != 409:  # 409: it is being deleted already
                raise refused("be deleted", live, error) from error
        skips = annotation(inputs, "pulumi.com/skipAwait") == "true"
        if not (skips and live.get("kind") in _SKIP_AWAIT_ON_DELETE):
            seconds = timeout_seconds(call.timeout_seconds, inputs)
            self.store.waiter.until_gone(resource, live, seconds=seconds, urn=call.resource.urn)
        self.store.forget_defined(resource, live)

    def _let_go(
        self, call: calls.DeleteCall, resource: ApiResource, live: Object, inputs: Object
    ) -> None:
        """End the ownership of a patch's fields: what nobody else owns goes, the object stays."""
        identity = {key: live[key] for key in ("apiVersion", "kind")}
        metadata = {"name": name_of(live)}
        if resource.namespaced:
            metadata["namespace"] = namespace_of(live)
        manager = applying.field_manager(call.resource, call.outputs, inputs)
        try:
            applying.apply(self.store.api, resource, {**identity, "metadata": metadata}, manager)
        except ApiError as error:
            if not error.absent:
                raise refused("be left without the patched fields", live, error) from error

    def _inputs(self, call: calls.ReadCall, live: Object, old_inputs: Object) -> Object:
        if not old_inputs:
            return inputs_of(live)
        return refreshed_inputs(live, old_inputs, live_object(call.outputs))

    def read(self, call: calls.ReadCall) -> calls.Found | None:
        """The object as it is, and the inputs that describe it as it is."""
        old_inputs = to_object(call.inputs)
        known = old_inputs if old_inputs.get("kind") else live_object(call.outputs)
        kind = kind_of(known) if known.get("kind") else _kind(call.resource)
        resource = self.store.api.find(kind)
        namespace, name = parse_identifier(call.id)
        if resource is not None and resource.namespaced:
            namespace = namespace or self.store.default_namespace
        live = self.store.api.get(resource, namespace, name) if resource else None
        if live is None:
            return None
        if call.outputs:
            self.record(call.resource, call.id)
        inputs = self._inputs(call, live, old_inputs)
        manager = applying.field_manager(call.resource, call.outputs, inputs)
        version = str(call.outputs.get(INITIAL_API_VERSION) or live.get("apiVersion"))
        found = outputs(live, inputs, call.inputs, manager, version)
        return calls.Found(call.id or identifier(live), found, with_secrets(inputs, call.inputs))


def _kind(resource: calls.Resource) -> GroupVersionKind:
    return kind_of_token(resource.type)


def _with_ignored(obj: Object, current: Object | None, ignored: Sequence[str]) -> Object:
    """The object with ignored fields as they are in the cluster, so that applying it changes none."""
    for text in ignored:
        path = paths.parse(text)
        obj = paths.copied(current or {}, obj, path)
    return obj
