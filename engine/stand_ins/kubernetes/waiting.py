"""Waiting: until an object is ready, until an object is gone."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.answers import ProviderError
from engine.stand_ins.calls import Cancelled
from engine.stand_ins.kubernetes import readiness
from engine.stand_ins.kubernetes.client import Api, ApiError, ApiResource, Unreachable
from engine.stand_ins.kubernetes.objects import (
    GroupVersionKind,
    Object,
    annotation,
    metadata_of,
    name_of,
    namespace_of,
    title,
)

DEFAULT_SECONDS: Final = 600.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 60.0  # an API server may restart while we wait
_REASONS: Final = 5


class NotReady(ProviderError):  # noqa: N818 - a state of the object
    """The object exists but did not become ready; `live` is how it was last seen."""

    def __init__(self, message: str, live: Object, reasons: list[str]) -> None:
        super().__init__(message)
        self.live = live
        self.reasons = reasons


def timeout_seconds(call_timeout: float, obj: Mapping[str, Any]) -> float:
    """How long to wait: the resource's custom timeout, else its annotation, else ten minutes."""
    if call_timeout:
        return call_timeout
    text = annotation(obj, "pulumi.com/timeoutSeconds")
    return float(text) if text.isdigit() else DEFAULT_SECONDS


@dataclass(frozen=True)
class Waiter:
    """Looks again and again, less and less often, until it sees what it waits for or is told to stop."""

    api: Api
    cancelled: threading.Event

    def until_ready(self, resource: ApiResource, live: Object, *, seconds: float) -> Object:
        """The object once it is ready.

        Raises:
            NotReady: it failed, the time is over, or the wait was cancelled.
        """
        if annotation(live, "pulumi.com/skipAwait") == "true":
            return live
        if not readiness.is_awaited(live):
            return live
        progress = self._progress(live)
        for _ in self._pauses(seconds):
            if progress.ready:
                return live
            if progress.failed:
                break
            seen = self._look(resource, live)
            if seen is None:
                raise NotReady(f"{title(live)} was deleted while it was waited for", live, [])
            live, progress = seen, self._progress(seen)
        else:
            if progress.ready:
                return live
        raise self._not_ready(live, progress, seconds)

    def until_gone(self, resource: ApiResource, live: Object, *, seconds: float) -> None:
        """Return when the object is gone, or another one has its name.

        Raises:
            ProviderError: it is still there when the time is over, with what holds it.
            Cancelled: the engine asked to stop.
        """
        uid = metadata_of(live).get("uid")
        for _ in self._pauses(seconds):
            seen = self._look(resource, live)
            if seen is None or metadata_of(seen).get("uid") != uid:
                return
            live = seen
        if self.cancelled.is_set():
            raise Cancelled(
                f"stopped while waiting until {title(live)} is gone; its deletion goes on in the cluster"
            )
        raise ProviderError(
            f"{title(live)} is still there after {seconds:g} s: {what_holds(live)}; remove what "
            "holds it, or give it more time (custom timeout or annotation pulumi.com/timeoutSeconds)"
        )

    def _pauses(self, seconds: float) -> Iterator[None]:
        deadline = time.monotonic() + seconds
        pause = _FIRST_PAUSE_SECONDS
        yield
        while time.monotonic() < deadline and not self.cancelled.wait(pause):
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
            yield

    def _look(self, resource: ApiResource, live: Object) -> Object | None:
        return self._patiently(
            lambda: self.api.get(resource, namespace_of(live), name_of(live)), live
        )

    def _patiently(self, look: Callable[[], Object | None], live: Object) -> Object | None:
        """`look`, over a short silence of the API server."""
        deadline = time.monotonic() + _SILENCE_SECONDS
        while True:
            try:
                return look()
            except Unreachable as error:
                if time.monotonic() > deadline or self.cancelled.wait(0.5):
                    message = f"lost sight of {title(live)}: {error}"
                    raise NotReady(message, live, [str(error)]) from error

    def _progress(self, live: Object) -> readiness.Progress:
        return readiness.progress(live, self._surroundings(live))

    def _surroundings(self, live: Object) -> readiness.Surroundings | None:
        kind = readiness.key_of(live)
        if kind == ("", "Service"):
            slices = self.api.find(GroupVersionKind("discovery.k8s.io/v1", "EndpointSlice"))
            query = {"labelSelector": f"kubernetes.io/service-name={name_of(live)}"}
            found = self.api.list(slices, namespace_of(live), query) if slices else ()
            return readiness.Surroundings(endpoint_slices=found)
        if kind == ("", "PersistentVolumeClaim"):
            classes = self.api.find(GroupVersionKind("storage.k8s.io/v1", "StorageClass"))
            name = (live.get("spec") or {}).get("storageClassName")
            found_class = self.api.get(classes, "", name) if classes and name else None
            return readiness.Surroundings(storage_class=found_class)
        return None

    def _not_ready(self, live: Object, progress: readiness.Progress, seconds: float) -> NotReady:
        if progress.failed:
            what = f"{title(live)} failed: {progress.message}"
        elif self.cancelled.is_set():
            what = f"stopped while waiting for {title(live)}: {progress.message}"
        else:
            what = f"{title(live)} is not ready after {seconds:g} s: {progress.message}"
        reasons = self._reasons(live)
        detail = f" ({'; '.join(reasons)})" if reasons else ""
        return NotReady(
            f"{what}{detail}. It stays in the cluster and in the state; correct it and run `up` again",
            live,
            [what, *reasons],
        )

    def _reasons(self, live: Object) -> list[str]:
        """What pods and events say about why; empty when nothing does."""
        try:
            return [*self._pod_troubles(live), *self._events(live)][:_REASONS]
        except (Unreachable, ApiError):
            return []

    def _pod_troubles(self, live: Object) -> list[str]:
        selector = ((live.get("spec") or {}).get("selector") or {}).get("matchLabels")
        pods = self.api.find(GroupVersionKind("v1", "Pod"))
        if not selector or pods is None:
            return []
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in selector.items())}
        troubles = (
            (name_of(pod), readiness.pod_trouble(pod))
            for pod in self.api.list(pods, namespace_of(live), query)
        )
        return [f"pod {name}: {trouble}" for name, trouble in troubles if trouble]

    def _events(self, live: Object) -> list[str]:
        events = self.api.find(GroupVersionKind("v1", "Event"))
        if events is None:
            return []
        query = {"fieldSelector": f"involvedObject.uid={metadata_of(live).get('uid')},type=Warning"}
        found = self.api.list(events, namespace_of(live) or "default", query)
        return [f"{item.get('reason')}: {item.get('message')}" for item in found[-3:]]


def what_holds(live: Object) -> str:
    """Why an object is still there, as far as it says itself."""
    if readiness.key_of(live) == ("", "Namespace"):
        told = [
            str(readiness.condition(live, kind).get("message"))
            for kind in (
                "NamespaceContentRemaining",
                "NamespaceFinalizersRemaining",
                "NamespaceDeletionContentFailure",
                "NamespaceDeletionDiscoveryFailure",
            )
            if readiness.condition(live, kind).get("status") == "True"
        ]
        if told:
            return "; ".join(told)
    finalizers = metadata_of(live).get("finalizers") or ()
    if finalizers:
        return f"finalizers {', '.join(finalizers)} are still set"
    return "the API server has not removed it yet"
