"""What of a declared Kubernetes object is not so in the live one.

A server fills in defaults, so only what is declared is looked at: fields beside it are the server's, or of
others who may have them. Lists are compared whole, by the names of their entries where these have any.
Who changed a field its object's `managedFields` say.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuclusters.core.quantity import parse_quantity
from gpuclusters.review.diffing import entry_key
from gpuclusters.review.text import SECRET, is_secret_name, masked_text

Path = tuple[str, ...]
Object = Mapping[str, Any]

_ABSENT: Final = object()
_KEYS = ("name", "containerPort", "port", "mountPath", "devicePath", "ip", "key", "type", "uid")
"""What tells one entry of a list from the others, in this order."""
_SERVERS: frozenset[Path] = frozenset(
    {
        ("status",),
        *(("metadata", key) for key in (
            "creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid",
        )),
    }
)  # fmt: skip
"""What is the server's whatever is declared."""
_TRUE_WHEN_ABSENT = {
    "automountServiceAccountToken",
    "allowPrivilegeEscalation",
    "enableServiceLinks",
}
"""Fields of which saying nothing means yes."""
_EMPTY: tuple[Any, ...] = (None, "", [], {}, False, 0)
_LONGEST = 160
_MINUTE = len("2026-01-01T00:00")


@dataclass(frozen=True, slots=True)
class Field:
    """One field that is not as declared."""

    path: Path
    declared: Any
    """`absent` has been asked about it: see `gone` and `extra`."""
    found: Any

    @property
    def gone(self) -> bool:
        """Whether it is declared and not there."""
        return self.found is _ABSENT

    @property
    def extra(self) -> bool:
        """Whether it is there and not declared."""
        return self.declared is _ABSENT

    @property
    def name(self) -> str:
        """Its path as people write it."""
        return dotted(self.path)

    @property
    def line(self) -> str:
        if self.gone:
            return f"{self.name}: {shown(self.path, self.declared)} is gone"
        if self.extra:
            return f"{self.name}: {shown(self.path, self.found)} was added"
        return (
            f"{self.name}: {shown(self.path, self.found)} instead of "
            f"{shown(self.path, self.declared)}"
        )


def differing(declared: Object, live: Object) -> list[Field]:
    """Fields of a live object that are not as declared, in the order of their paths."""
    secret = str(declared.get("kind")) == "Secret"
    found = list(_maps((), declared, live, secret=secret))
    return sorted(found, key=lambda field: field.path)


def dotted(path: Path) -> str:
    """`spec.template.spec.containers[api].image`."""
    text = ""
    for part in path:
        text += part if part.startswith("[") else f".{part}" if text else part
    return text


def shown(path: Path, value: Any) -> str:
    """A value in few words; nothing secret."""
    name = next((part for part in reversed(path) if not part.startswith("[")), "")
    if value is SECRET or (isinstance(value, str) and value and is_secret_name(name)):
        return SECRET
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    text = masked_text(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _maps(path: Path, declared: Object, live: Object, *, secret: bool) -> Iterator[Field]:
    for key in sorted(declared, key=str):
        below = (*path, str(key))
        if below in _SERVERS:
            continue
        wanted, found = declared[key], live.get(key, _ABSENT)
        if secret and below[0] in ("data", "stringData"):
            yield from _secrets(below, wanted, live)
        else:
            yield from _values(below, wanted, found)


def _secrets(path: Path, wanted: Any, live: Object) -> Iterator[Field]:
    """Of a Secret only which keys it has: what they hold is masked on at least one side."""
    there = live.get("data")
    for key in sorted(wanted if isinstance(wanted, Mapping) else ()):
        if not isinstance(there, Mapping) or key not in there:
            yield Field((*path, str(key)), SECRET, _ABSENT)


def _values(path: Path, wanted: Any, found: Any) -> Iterator[Field]:
    if wanted is SECRET or wanted == SECRET or found == SECRET:
        if found is _ABSENT:
            yield Field(path, wanted, found)
    elif found is _ABSENT or found is None:
        # Servers drop what is empty: nothing said and nothing there are the same.
        if not _is_empty(wanted) or path[-1] in _TRUE_WHEN_ABSENT:
            yield Field(path, wanted, _ABSENT)
    elif isinstance(wanted, Mapping) and isinstance(found, Mapping):
        yield from _maps(path, wanted, found, secret=False)
    elif _is_list(wanted) and _is_list(found):
        yield from _lists(path, list(wanted), list(found))
    elif not same(wanted, found):
        yield Field(path, wanted, found)


def _lists(path: Path, wanted: list[Any], found: list[Any]) -> Iterator[Field]:
    key = entry_key(wanted, found, _KEYS)
    if key is None:
        if all(not isinstance(item, Mapping) for item in (*wanted, *found)):
            if sorted(map(_plain, wanted)) != sorted(map(_plain, found)):
                yield Field(path, wanted, found)
            return
        if len(wanted) != len(found):
            yield Field(path, f"{len(wanted)} entries", f"{len(found)} entries")
            return
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from _values((*path, f"[{index}]"), one, other)
        return
    there = {str(item[key]): item for item in found}
    named = {str(item[key]): item for item in wanted}
    for name in sorted({*there, *named}):
        below = (*path, f"[{name}]")
        if name not in there:
            yield Field(below, named[name], _ABSENT)
        elif name not in named:
            yield Field(below, _ABSENT, there[name])
        else:
            yield from _values(below, named[name], there[name])


def same(one: Any, other: Any) -> bool:
    """Whether two plain values mean the same: `8.0` and `8`, `1000m` and `1`, `"80"` and `80`."""
    if one == other or (_is_empty(one) and _is_empty(other)):
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return _plain(one) == _plain(other)
    if isinstance(one, str | int | float) and isinstance(other, str | int | float):
        if str(one).strip() == str(other).strip():
            return True
        try:
            return parse_quantity(str(one)) == parse_quantity(str(other))
        except ValueError:
            return False
    return False


def _is_empty(value: Any) -> bool:
    return value in _EMPTY


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def who(live: Object, paths: Iterable[Path]) -> str:
    """The managers that own the fields, the latest first: `kubectl-patch (2026-11-22 05:01 UTC)`.

    Empty where nobody does, as for a field that was removed: whoever removed it does not own it any more.
    """
    found = managers(live, paths)
    latest = sorted(found.items(), key=lambda item: (item[1], item[0]), reverse=True)
    return ", ".join(_manager(manager, time) for manager, time in latest)


def changed(live: Object, fields: Sequence[Field]) -> dict[str, Any]:
    """What a finding says of the fields of a live object: a line each, and who changed them."""
    by = who(live, [field.path for field in fields])
    return {"lines": [field.line for field in fields], "by": by}


def managers(live: Object, paths: Iterable[Path]) -> Mapping[str, str]:
    """When each manager that owns any of the fields wrote last, by its name."""
    wanted = list(paths)
    found: dict[str, str] = {}
    for entry in (live.get("metadata") or {}).get("managedFields") or ():
        fields = entry.get("fieldsV1")
        if not isinstance(fields, Mapping) or entry.get("subresource") == "status":
            continue
        if any(_owns(fields, path) for path in wanted):
            manager = str(entry.get("manager") or "unknown")
            found[manager] = max(found.get(manager, ""), str(entry.get("time") or ""))
    return found


def _manager(manager: str, time: str) -> str:
    return f"{manager} ({time[:_MINUTE].replace('T', ' ')} UTC)" if time else manager


def _owns(fields: Object, path: Sequence[str]) -> bool:
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
