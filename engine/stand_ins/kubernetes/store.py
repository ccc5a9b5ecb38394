"""Objects in one cluster: where they go, applying them, waiting for them, what the state keeps of them."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.answers import ProviderError
from engine.stand_ins import calls
from engine.stand_ins.calls import PartialError
from engine.stand_ins.engine_log import EngineLog
from engine.stand_ins.kubernetes import applying
from engine.stand_ins.kubernetes.applying import Applied
from engine.stand_ins.kubernetes.client import Api, ApiError, ApiResource
from engine.stand_ins.kubernetes.objects import (
    GroupVersionKind,
    Object,
    checkpoint,
    identifier,
    metadata_of,
    namespace_of,
    title,
)
from engine.stand_ins.kubernetes.options import Options
from engine.stand_ins.kubernetes.waiting import NotReady, Waiter, timeout_seconds
from engine.stand_ins.values import Properties

_SETTLE_SECONDS: Final = (
    10.0  # for a namespace or a definition made a moment ago to be served everywhere
)
_SETTLE_PAUSE_SECONDS: Final = 0.1
_DEFINITION: Final = ("apiextensions.k8s.io", "CustomResourceDefinition")


@dataclass(frozen=True)
class Store:
    api: Api
    options: Options
    engine: EngineLog
    cancelled: threading.Event
    default_namespace: str

    @property
    def waiter(self) -> Waiter:
        return Waiter(self.api, self.cancelled)

    def ready(
        self,
        call: calls.Call,
        resource: ApiResource,
        applied: Applied,
        obj: Object,
        manager: str,
    ) -> Object:
        """The applied object once it is ready.

        Raises:
            PartialError: it did not become ready; the state has to keep it.
        """
        self.warn(applied.warnings, call.resource)
        try:
            live = self.waiter.until_ready(
                resource,
                applied.live,
                seconds=timeout_seconds(call.timeout_seconds, obj),
            )
        except NotReady as error:
            raise PartialError(
                str(error),
                id=identifier(error.live),
                properties=outputs(error.live, obj, call.news, manager),
                reasons=error.reasons,
            ) from error
        self.forget_defined(resource, live)
        return live

    def apply(self, resource: ApiResource, obj: Object, manager: str) -> Applied:
        """Apply, over the moment in which a namespace or definition just made is not served yet."""
        force = applying.forced(obj)
        return self._settled(
            "be applied",
            obj,
            lambda: applying.apply(self.api, resource, obj, manager, force=force),
        )

    def make(self, resource: ApiResource, obj: Object) -> Applied:
        return self._settled("be created", obj, lambda: applying.create(self.api, resource, obj))

    def _settled(self, what: str, obj: Object, tried: Callable[[], Applied]) -> Applied:
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            # Asked before: whoever stood still until then tries once more.
            late = time.monotonic() > deadline
            try:
                return tried()
            except ApiError as error:
                if not error.absent or late or self.cancelled.wait(_SETTLE_PAUSE_SECONDS):
                    raise refused(what, obj, error) from error

    def located(self, kind: GroupVersionKind, obj: Object) -> ApiResource:
        """Where `kind` lives, over the moment in which a definition just made is not served yet."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            late = time.monotonic() > deadline
            resource = self.api.find(kind)
            if resource is not None:
                return resource
            if late or self.cancelled.wait(_SETTLE_PAUSE_SECONDS):
                raise ProviderError(
                    f"{title(obj)} cannot be made: the API server knows no {kind}. Make its "
                    "CustomResourceDefinition first (depends_on), or correct apiVersion and kind"
                )

    def placed(self, obj: Object, resource: ApiResource) -> Object:
        """The object with a namespace if its kind has them, and without one if not."""
        metadata = dict(metadata_of(obj))
        metadata.pop("namespace", None)
        if resource.namespaced:
            metadata["namespace"] = namespace_of(obj) or self.default_namespace
        return {**obj, "metadata": metadata}

    def forget_defined(self, resource: ApiResource, definition: Object) -> None:
        """After a definition was made or removed: ask again for the kinds of its group."""
        if (resource.kind.group, resource.kind.kind) == _DEFINITION:
            self.api.forget(str((definition.get("spec") or {}).get("group", "")))

    def warn(self, warnings: Sequence[str], owner: calls.Resource) -> None:
        for text in warnings:
            self.engine.warning(text, owner.urn)


def outputs(
    live: Object, inputs: Object, marks: Properties, manager: str, version: str = ""
) -> Properties:
    return checkpoint(
        live, inputs, marks, manager=manager, api_version=version or str(inputs["apiVersion"])
    )


def refused(what: str, obj: Mapping[str, Any], error: ApiError) -> ProviderError:
    """The API server's no, with the object it is about."""
    return ProviderError(f"{title(obj)} could not {what}: {error.message}")
