"""What differs between two sets of inputs, and what that means."""

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence

from engine import paths
from engine.events import DiffKind, PropertyDiff
from engine.paths import Path, PathError
from engine.values import Value, Values, reveal_all

INIT_ERROR = "#initerror"
"""The property name by which `replaceOnChanges` can ask for a new resource after an init error."""

_AS_REPLACEMENT: dict[DiffKind, DiffKind] = {
    "add": "add-replace",
    "delete": "delete-replace",
    "update": "update-replace",
}


class Changes(enum.Enum):
    """A provider's answer to whether anything differs."""

    UNKNOWN = 0
    NONE = 1
    SOME = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Diff:
    """The difference between a resource and what it should be.

    `replace_keys` are the properties that cannot be changed in place; `detailed` is None if
    nobody looked at single properties. `forced` asks for a new object whatever differs.
    """

    changes: Changes
    replace_keys: tuple[str, ...] = ()
    changed_keys: tuple[str, ...] = ()
    detailed: Mapping[str, PropertyDiff] | None = None
    delete_before_replace: bool = False
    forced: bool = False

    @property
    def replace(self) -> bool:
        """Whether the resource must be made anew."""
        if self.changes is not Changes.SOME:
            return False
        kinds = (d.kind for d in (self.detailed or {}).values())
        return (
            self.forced
            or bool(self.replace_keys)
            or any(kind.endswith("-replace") for kind in kinds)
        )


NO_CHANGES = Diff(Changes.NONE)


class IgnoreChangesError(ValueError):
    """`ignore_changes` names something that cannot be put back."""


def ignore_changes(inputs: Values, old_inputs: Values, ignored: Iterable[str]) -> Values:
    """The inputs with old values where the program says that changes are to be ignored.

    Raises:
        IgnoreChangesError: an element on the way to an ignored property is missing.
        PathError: a path cannot be read.
    """
    missing: list[str] = []
    result: Value = inputs
    for text in ignored:
        try:
            result = paths.reset(result, old_inputs, paths.parse(text))
        except PathError:
            missing.append(text)
    if missing:
        listed = ", ".join(missing)
        raise IgnoreChangesError(
            "cannot ignore changes to the following properties because one or more elements of"
            f' the path are missing: "{listed}"'
        )
    return result if isinstance(result, dict) else inputs


def compare_inputs(old: Values, new: Values) -> Diff:
    """The engine's own comparison, for providers that leave it to the engine."""
    detailed = {
        paths.render(path): PropertyDiff(kind, input_diff=True)
        for path, kind in _differences(old, new)
    }
    if not detailed:
        return NO_CHANGES
    changed = sorted({str(paths.parse(path)[0]) for path in detailed})
    return Diff(Changes.SOME, changed_keys=tuple(changed), detailed=detailed)


def resolve_unknown(diff: Diff, old: Values, new: Values, ignored: Iterable[str]) -> Diff:
    """The difference; where a provider leaves it to the engine, that of the inputs.

    Raises:
        IgnoreChangesError: see `ignore_changes`.
    """
    if diff.changes is not Changes.UNKNOWN:
        return diff
    # An equal value that has become secret, or is no longer, is the same value.
    compared = compare_inputs(reveal_all(old), reveal_all(ignore_changes(new, old, ignored)))
    return dataclasses.replace(
        diff,
        changes=compared.changes,
        changed_keys=compared.changed_keys,
        detailed=compared.detailed,
    )


def _differences(old: Value, new: Value, path: Path = ()) -> Iterable[tuple[Path, DiffKind]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            before = old[index] if index < len(old) else None
            after = new[index] if index < len(new) else None
            yield from _differences(before, after, (*path, index))
    elif not _equal(old, new):
        yield path, "add" if old is None else "delete" if new is None else "update"


def _equal(old: Value, new: Value) -> bool:
    # Python takes True for 1; a provider does not.
    return old == new and isinstance(old, bool) == isinstance(new, bool)


def apply_replace_on_changes(diff: Diff, patterns: Sequence[str], *, init_errors: bool) -> Diff:
    """The difference with `replace_on_changes` taken into account.

    Raises:
        PathError: a path cannot be read.
    """
    if diff.changes is not Changes.SOME and not init_errors:
        return diff
    wanted = [paths.parse(p) for p in patterns]
    # A pattern inside of a changed property shows in the details alone, not in the reasons.
    changed = (k for k in diff.changed_keys if _is_within((k,), wanted))
    keys = dict.fromkeys((*diff.replace_keys, *changed))
    detailed = None if diff.detailed is None else dict(diff.detailed)
    for text, found in (diff.detailed or {}).items():
        if detailed is not None and _is_within(paths.parse(text), wanted):
            kind = _AS_REPLACEMENT.get(found.kind, found.kind)
            detailed[text] = PropertyDiff(kind, found.input_diff)
    changes = diff.changes
    if init_errors and _is_within((INIT_ERROR,), wanted):
        changes = Changes.SOME
        keys[INIT_ERROR] = None
        if detailed is not None:
            detailed[INIT_ERROR] = PropertyDiff("update-replace", input_diff=False)
    return dataclasses.replace(
        diff, changes=changes, replace_keys=tuple(sorted(keys)), detailed=detailed
    )


def _is_within(path: Path, patterns: Iterable[Path]) -> bool:
    return any(paths.contains(pattern, path) for pattern in patterns)
