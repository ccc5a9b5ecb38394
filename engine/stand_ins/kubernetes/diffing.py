"""Diff: what new inputs would change, and whether in place.

The recorded live object, cut down to what the program speaks about, is compared with the new inputs.
Where that differs, a dry run of server-side apply shows what the server would make of the new inputs: a
quantity written differently, a default spelled out or a field that the server drops is then no change,
and a field that cannot change is found by the server's own answer.
"""

import copy
import dataclasses
from collections.abc import Callable, Sequence

from engine import paths
from engine.stand_ins.calls import Diff
from engine.stand_ins.comparison import Changes, compare, diff_of, without_ignored
from engine.stand_ins.kubernetes.client import ApiError
from engine.stand_ins.kubernetes.objects import (
    Object,
    metadata_of,
    name_of,
    namespace_of,
    prune,
    with_encoded_data,
)
from engine.stand_ins.kubernetes.replacement import (
    Mutability,
    identity_fields,
    immutable_fields,
    old_one_first,
    refused_fields,
    with_replacements,
)

DryRun = Callable[[Object], Object | None]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Old and new form of one object.

    Attributes:
        live: the object as recorded (after a refresh: as it is).
        old_inputs: what it was made from.
        new_inputs: what it is to be made from; may hold unknowns.
        namespaced: whether its kind lives in namespaces.
        default_namespace: where an object without a namespace goes.
        patch: whether only some fields of an object that others own are set; it is never replaced for them.
    """

    live: Object
    old_inputs: Object
    new_inputs: Object
    namespaced: bool
    default_namespace: str
    patch: bool = False


def diff(
    comparison: Comparison, mutability: Mutability, ignored: Sequence[str], dry_run: DryRun | None
) -> Diff:
    """The changes, in the program's own paths.

    Args:
        comparison: what to compare.
        mutability: which data may change in place.
        ignored: paths that the program asked to ignore.
        dry_run: applies without effect and returns the result, None where it could not; None if inputs
            are not known yet or there is no cluster to ask.
    """
    old_shape = _normal(comparison.old_inputs, comparison)
    new = _normal(comparison.new_inputs, comparison)
    live = _normal(comparison.live, comparison)
    old = prune(live, old_shape)
    changes = compare(old, new)
    if not changes:
        return Diff()
    fields = identity_fields() if comparison.patch else immutable_fields(new, mutability)
    if dry_run is not None and _same_object(live, new):
        try:
            predicted = dry_run(comparison.new_inputs)
        except ApiError as error:
            predicted = _predicted_anew(dry_run, comparison)
            changes = _against(predicted, old, new, changes, comparison)
            fields += [] if comparison.patch else _refused(error, changes)
        else:
            changes = _against(predicted, old, new, changes, comparison)
    changes = _in_program_terms(changes, comparison)
    changes = without_ignored(with_replacements(changes, fields), ignored)
    replaced = any(kind.replaces for kind in changes.values())
    first = replaced and old_one_first(live, new)
    return dataclasses.replace(diff_of(changes), delete_before_replace=first)


def _against(
    predicted: Object | None, old: Object, new: Object, changes: Changes, comparison: Comparison
) -> Changes:
    if predicted is None:
        return changes
    return compare(old, prune(_normal(predicted, comparison), new))


def _predicted_anew(dry_run: DryRun, comparison: Comparison) -> Object | None:
    """What the server would make of the new inputs under a name that nothing has; None if it refuses."""
    wanted = comparison.new_inputs
    metadata = metadata_of(wanted)
    try:
        predicted = dry_run({**wanted, "metadata": {**metadata, "name": f"{name_of(wanted)}-new"}})
    except ApiError:
        return None
    if predicted is None:
        return None
    return {**predicted, "metadata": {**metadata_of(predicted), "name": name_of(wanted)}}


def _refused(error: ApiError, changes: Changes) -> list[paths.Path]:
    """Which changes the server refuses to make in place; if it names none of ours, all that it may mean."""
    fields = refused_fields(error)
    if fields and not any(paths.touches(field, path) for field in fields for path in changes):
        return [path for path in changes if path[0] != "metadata"]
    return fields


def _same_object(live: Object, new: Object) -> bool:
    return (
        name_of(live) == name_of(new)
        and namespace_of(live) == namespace_of(new)
        and live.get("apiVersion") == new.get("apiVersion")
    )


def _normal(obj: Object, comparison: Comparison) -> Object:
    obj = copy.copy(with_encoded_data(obj))
    metadata = dict(metadata_of(obj))
    if comparison.namespaced:
        metadata["namespace"] = metadata.get("namespace") or comparison.default_namespace
    else:
        metadata.pop("namespace", None)
    if isinstance(obj.get("metadata"), dict) or "metadata" not in obj:
        obj["metadata"] = metadata
    return obj


def _in_program_terms(changes: Changes, comparison: Comparison) -> Changes:
    """Paths in a Secret's `data` as `stringData` where the program writes that."""
    texts = {
        *(comparison.new_inputs.get("stringData") or {}),
        *(comparison.old_inputs.get("stringData") or {}),
    }
    if comparison.new_inputs.get("kind") != "Secret" or not texts:
        return changes
    return {
        ("stringData", *path[1:])
        if path[0] == "data" and path[1:2] and path[1] in texts
        else path: kind
        for path, kind in changes.items()
    }
