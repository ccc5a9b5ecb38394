"""Taking over what is there already: only if it is as declared.

Pulumi cannot import what dynamic providers keep, so that taking over is a way to create: `adopt` has what is
there compared first, and refuses with every difference. What is ours alone (marks, notes of what was written)
is no difference, and neither is what is not there at all: that is made as ever.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuclusters.core.finding import refused

_LONGEST = 120


def require_no_diff(what: str, found: Sequence[str]) -> None:
    """Refuse to take over what differs, with every difference."""
    if found:
        problem = f"what is there differs from what is declared: {'; '.join(found)}"
        remedy = "declare it as it is, or bring it to what is declared, and run again; nothing was changed"
        raise refused(f"adopt {what}", "adopt.differs", problem, remedy)


def tree(path: str, there: Any, here: Any) -> Iterator[str]:
    """Two values of nested objects, leaf by leaf."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in sorted(there.keys() | here.keys()):
            yield from tree(f"{path}.{key}" if path else str(key), there.get(key), here.get(key))
    else:
        yield from value(path, there, here)


def partitions(active: Sequence[int], wanted: Sequence[int]) -> Iterator[str]:
    """Another set of active partitions; a board that is not cut yet has nothing to take over."""
    if active and sorted(active) != sorted(wanted):
        yield f"partitions {_listed(active)} are active instead of {_listed(wanted)}"


def value(name: str, there: Any, here: Any) -> Iterator[str]:
    if there != here:
        yield f"{name} is {_shown(there)} instead of {_shown(here)}"


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, Mapping) and all(inner is True for inner in value.values()):
        value = sorted(value)
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"
