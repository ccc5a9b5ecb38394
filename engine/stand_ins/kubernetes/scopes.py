"""Whether a kind lives in namespaces, also where the API server cannot say so (yet)."""

import threading
from collections.abc import Mapping
from typing import Any

from engine.stand_ins.kubernetes.client import Api, ApiResource, Unreachable
from engine.stand_ins.kubernetes.objects import GroupVersionKind, known_kinds


class Scopes:
    """Scopes of kinds: what the server says, else what the program defines, else Kubernetes' own list."""

    def __init__(self) -> None:
        self._planned: dict[tuple[str, str], bool] = {}
        self._lock = threading.Lock()

    def plan(self, definition: Mapping[str, Any]) -> None:
        """Remember a CustomResourceDefinition of the program that may not be in the cluster yet."""
        spec = definition.get("spec")
        names = spec.get("names") if isinstance(spec, Mapping) else None
        if not isinstance(spec, Mapping) or not isinstance(names, Mapping):
            return  # not known in this preview
        with self._lock:
            key = (str(spec.get("group")), str(names.get("kind")))
            self._planned[key] = spec.get("scope") == "Namespaced"

    def namespaced(self, kind: GroupVersionKind, api: Api | None) -> bool:
        """Whether objects of `kind` live in namespaces; unknown kinds are taken to."""
        key = (kind.group, kind.kind)
        if kind.kind in known_kinds()["cluster-scoped"].get(kind.group, ()):
            return False
        found = find(kind, api)
        if found is not None:
            return found.namespaced
        return self._planned.get(key, True)


def find(kind: GroupVersionKind, api: Api | None) -> ApiResource | None:
    """Where a kind lives; None without a cluster, or if the cluster does not know it."""
    try:
        return api.find(kind) if api is not None else None
    except Unreachable:
        return None
