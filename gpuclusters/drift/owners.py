"""Who changed a field of a Kubernetes object, as its own `managedFields` say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuclusters.drift.comparing import Path

_MINUTE = len("2026-01-01T00:00")


def who(live: Mapping[str, Any], paths: Iterable[Path]) -> str:
    """The managers that own the fields, the latest first: `kubectl-patch (2026-11-22 05:01 UTC)`.

    Empty where nobody does, as for a field that was removed: whoever removed it does not own it any more.
    """
    found = managers(live, paths)
    latest = sorted(found.items(), key=lambda item: (item[1], item[0]), reverse=True)
    return ", ".join(_told(manager, time) for manager, time in latest)


def managers(live: Mapping[str, Any], paths: Iterable[Path]) -> Mapping[str, str]:
    """When each manager that owns any of the fields wrote last, by its name."""
    entries = (live.get("metadata") or {}).get("managedFields") or ()
    wanted = list(paths)
    found: dict[str, str] = {}
    for entry in entries:
        fields = entry.get("fieldsV1")
        if not isinstance(fields, Mapping) or entry.get("subresource") == "status":
            continue
        if any(_owns(fields, path) for path in wanted):
            manager = str(entry.get("manager") or "unknown")
            found[manager] = max(found.get(manager, ""), str(entry.get("time") or ""))
    return found


def _told(manager: str, time: str) -> str:
    return f"{manager} ({time[:_MINUTE].replace('T', ' ')} UTC)" if time else manager


def _owns(fields: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Whether a set of fields has the path, or anything beneath it."""
    at: Any = fields
    for part in path:
        if not isinstance(at, Mapping):
            return False
        if part.startswith("["):
            name = part[1:-1]
            nested = [
                value
                for key, value in at.items()
                if key == f"i:{name}"
                or (key.startswith(("k:", "v:")) and f'"{name}"' in key)
                or (key.startswith("k:") and f":{name}}}" in key)
            ]
            if not nested:
                # A list that is owned as a whole.
                return not at or set(at) == {"."}
            at = nested[0]
        elif f"f:{part}" in at:
            at = at[f"f:{part}"]
        else:
            return at == {} and at is not fields
    return True
