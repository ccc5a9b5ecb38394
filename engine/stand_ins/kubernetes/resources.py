"""Kubernetes objects as resources: create, read, update and delete against one API server."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine import paths
from engine.answers import ProviderError
from engine.stand_ins import calls
from engine.stand_ins.comparison import same
from engine.stand_ins.kubernetes import applying, preview
from engine.stand_ins.kubernetes.applying import Applied, Conflict
from engine.stand_ins.kubernetes.client import ApiError, ApiResource
from engine.stand_ins.kubernetes.objects import (
    INITIAL_API_VERSION,
    Object,
    annotation,
    identifier,
    is_patch,
    kind_of,
    kind_of_token,
    live_object,
    name_of,
    namespace_of,
    parse_identifier,
    prune,
    recorded_inputs,
    title,
    to_object,
    with_encoded_data,
    with_secrets,
)
from engine.stand_ins.kubernetes.store import Store, outputs, refused
from engine.stand_ins.kubernetes.waiting import timeout_seconds
from engine.stand_ins.values import Properties

_PROPAGATION: Final = {"orphan": "Orphan", "background": "Background"}

# Kinds of which `pulumi.com/skipAwait` also skips the wait for their deletion, as in the real provider.
_SKIP_AWAIT_ON_DELETE: Final = frozenset(
    {"Namespace", "Pod", "ReplicationController", "DaemonSet", "Deployment", "StatefulSet", "Job"}
)


class Resources(Store):
    """Objects of one cluster, as the engine's calls want them."""

    def dry_run(self, obj: Object, manager: str) -> Object | None:
        """What applying `obj` would give; None if the server cannot say.

        Raises:
            ApiError: the server refuses a change of a field.
        """
        resource = self.api.find(kind_of(obj))
        if resource is None:
            return None
        obj = self.placed(obj, resource)
        try:
            return applying.apply(self.api, resource, obj, manager, force=True, dry_run=True).live
        except ApiError as error:
            if error.status in (403, 422):
                raise
            return None

    def create(self, call: calls.Call, obj: Object) -> calls.Found:
        """Make the object and wait until it is ready.

        One that exists is refused, also where an interrupted create has made it; with
        `upsertExistingObjects` it is applied, whoever made it. A patch is always applied.
        """
        manager = applying.field_manager({}, obj)
        if call.preview:
            return self._create_preview(call, obj, manager)
        resource = self.located(kind_of(obj), obj)
        obj = self.placed(obj, resource)
        if self.options.upsert or is_patch(call.resource.type, obj):
            applied = self.apply(resource, obj, manager)
        else:
            applied = self._create_new(call.resource, resource, obj)
        live = self.ready(call, resource, applied, obj, manager)
        return calls.Found(identifier(live), outputs(live, obj, call.news, manager))

    def _create_new(self, owner: calls.Resource, resource: ApiResource, obj: Object) -> Applied:
        try:
            return self.make(resource, obj)
        except ProviderError as error:
            if not _exists(error.__cause__):
                raise
            raise ProviderError(
                f"resource {owner.urn!r} was not successfully created by the Kubernetes API server: "
                f"{error.__cause__}. Import it, give this one another name, or set the provider option "
                "upsertExistingObjects to take it over"
            ) from error

    def _create_preview(self, call: calls.Call, obj: Object, manager: str) -> calls.Found:
        resource = self.api.find(kind_of(obj))
        if resource is None or is_patch(call.resource.type, obj):
            return calls.Found("", dict(call.news))
        obj = self.placed(obj, resource)
        try:
            if self.options.upsert:
                # Forced, so that what is replaced by this run is no conflict; the run itself does not force.
                applied = applying.apply(self.api, resource, obj, manager, force=True, dry_run=True)
            else:
                applied = applying.create(self.api, resource, obj, dry_run=True)
        except ApiError as error:
            # That it exists a preview does not say: the run may remove it first.
            if preview.is_inconclusive(error) or _exists(error):
                return calls.Found("", dict(call.news))
            raise refused("be created", obj, error) from error
        self.warn(applied.warnings, call.resource)
        live = preview.of_creation(applied.live, obj)
        return calls.Found("", outputs(live, obj, call.news, manager))

    def update(self, call: calls.Call, obj: Object) -> Properties:
        """Bring the object to new inputs and wait until it is ready; one that is gone is an error."""
        before = applying.field_manager(call.olds, recorded_inputs(call.olds))
        manager = applying.field_manager(call.olds, obj)
        resource = self.api.find(kind_of(obj))
        if resource is None and call.preview:
            return dict(call.news)
        resource = resource or self.located(kind_of(obj), obj)
        obj = self.placed(obj, resource)
        current = self.api.get(resource, namespace_of(obj), name_of(obj))
        if current is None:
            raise ProviderError(
                f"update of resource {call.resource.urn!r} failed: {title(obj)} not found; somebody "
                "removed it. `refresh` takes it out of the state, and the next `up` makes it again"
            )
        obj = _with_ignored(obj, current, call.ignore_changes)
        if call.preview:
            return self._update_preview(call, resource, obj, current, manager)
        if _is_definition(obj):
            applied = self._replaced(resource, obj, current, manager)
        else:
            if not is_patch(call.resource.type, obj):
                applying.take_over(self.api, resource, current, manager)
            applied = self.apply(resource, obj, manager)
        live = self.ready(call, resource, applied, obj, manager)
        if before != manager and not _is_definition(obj):
            self._relinquish(resource, live, before)
        version = str(call.olds.get(INITIAL_API_VERSION) or obj["apiVersion"])
        return outputs(live, obj, call.news, manager, version)

    def _replaced(
        self, resource: ApiResource, obj: Object, current: Object, manager: str
    ) -> Applied:
        try:
            return applying.replace(self.api, resource, obj, current, manager)
        except ApiError as error:
            raise refused("be replaced", obj, error) from error

    def _update_preview(
        self,
        call: calls.Call,
        resource: ApiResource,
        obj: Object,
        current: Object,
        manager: str,
    ) -> Properties:
        force = applying.forced(obj)
        try:
            if _is_definition(obj):
                applied = applying.replace(self.api, resource, obj, current, manager, dry_run=True)
            else:
                applied = applying.apply(
                    self.api, resource, obj, manager, force=force, dry_run=True
                )
        except Conflict as conflict:
            if not conflict.would_be_taken_over:
                raise
            applied = applying.apply(self.api, resource, obj, manager, force=True, dry_run=True)
        except ApiError as error:
            if preview.is_inconclusive(error):
                return dict(call.news)
            raise refused("be updated", obj, error) from error
        self.warn(applied.warnings, call.resource)
        version = str(call.olds.get(INITIAL_API_VERSION) or obj["apiVersion"])
        return outputs(preview.of_update(applied.live), obj, call.news, manager, version)

    def delete(self, call: calls.Call) -> None:
        """Remove the object and wait until it is gone; absent is done."""
        inputs, recorded = recorded_inputs(call.olds), live_object(call.olds)
        namespace, name = parse_identifier(call.id)
        resource = self.api.find(
            kind_of(recorded) if recorded.get("kind") else kind_of_token(call.resource.type)
        )
        live = self.api.get(resource, namespace, name) if resource else None
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
            self.api.request("DELETE", resource.path(namespace, name), body=body)
        except ApiError as error:
            if error.absent:
                return
            if error.status != 409:  # 409: it is being deleted already
                raise refused("be deleted", live, error) from error
        skips = annotation(inputs, "pulumi.com/skipAwait") == "true"
        if not (skips and live.get("kind") in _SKIP_AWAIT_ON_DELETE):
            seconds = timeout_seconds(call.timeout_seconds, inputs)
            self.waiter.until_gone(resource, live, seconds=seconds)
        self.forget_defined(resource, live)

    def _let_go(
        self, call: calls.Call, resource: ApiResource, live: Object, inputs: Object
    ) -> None:
        """End the ownership of a patch's fields: what nobody else owns goes, the object stays."""
        self._relinquish(resource, live, applying.field_manager(call.olds, inputs))

    def _relinquish(self, resource: ApiResource, live: Object, manager: str) -> None:
        identity = {key: live[key] for key in ("apiVersion", "kind")}
        metadata = {"name": name_of(live)}
        if resource.namespaced:
            metadata["namespace"] = namespace_of(live)
        try:
            applying.apply(self.api, resource, {**identity, "metadata": metadata}, manager)
        except ApiError as error:
            if not error.absent:
                raise refused("be left without the patched fields", live, error) from error

    def read(self, call: calls.Call) -> calls.Found | None:
        """The object as it is, and the inputs that describe it as it is."""
        old_inputs = to_object(call.old_inputs)
        resource = self.api.find(kind_of(old_inputs))
        namespace, name = parse_identifier(call.id)
        if resource is not None and resource.namespaced:
            namespace = namespace or self.default_namespace
        live = self.api.get(resource, namespace, name) if resource else None
        if live is None:
            return None
        inputs = refreshed_inputs(live, old_inputs, live_object(call.olds))
        manager = applying.field_manager(call.olds, inputs)
        version = str(call.olds.get(INITIAL_API_VERSION) or live.get("apiVersion"))
        found = outputs(live, inputs, call.old_inputs, manager, version)
        return calls.Found(
            call.id or identifier(live), found, with_secrets(inputs, call.old_inputs)
        )


def refreshed_inputs(live: Object, old_inputs: Object, recorded: Object) -> Object:
    """Recorded inputs as they are in the cluster now.

    What did not change since it was recorded keeps the program's spelling (`1024Gi`, where the server says
    `1Ti`), and a Secret its texts.
    """
    shape = with_encoded_data(old_inputs)
    inputs: Object = _as_written(shape, prune(recorded, shape), prune(live, shape))
    if "stringData" not in old_inputs:
        return inputs
    kept = {
        key: text
        for key, text in old_inputs["stringData"].items()
        if with_encoded_data({"kind": "Secret", "stringData": {key: text}})["data"].get(key)
        == (inputs.get("data") or {}).get(key)
    }
    data = {key: value for key, value in (inputs.get("data") or {}).items() if key not in kept}
    inputs["stringData"] = kept
    inputs.pop("data", None)
    return {**inputs, "data": data} if data else inputs


def _as_written(old: Any, recorded: Any, live: Any) -> Any:
    if same(recorded, live):
        return old
    if isinstance(old, Mapping) and isinstance(recorded, Mapping) and isinstance(live, Mapping):
        return {key: _as_written(old[key], recorded.get(key), value) for key, value in live.items()}
    return live


def _exists(error: BaseException | None) -> bool:
    return isinstance(error, ApiError) and error.reason == "AlreadyExists"


def _is_definition(obj: Object) -> bool:
    return kind_of(obj).kind == "CustomResourceDefinition"


def _with_ignored(obj: Object, current: Object | None, ignored: Sequence[str]) -> Object:
    """The object with ignored fields as they are in the cluster, so that applying it changes none."""
    for text in ignored:
        path = paths.parse(text)
        obj = paths.copied(current or {}, obj, path)
    return obj
