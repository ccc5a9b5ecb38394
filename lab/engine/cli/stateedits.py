"""Changes of a state by hand, on its resources as they stand in the checkpoint: no effects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lab.engine import urn as urns
from lab.engine.usererror import UserError

Resource = Mapping[str, Any]
Resources = list[dict[str, Any]]


def find(resources: Sequence[Resource], urn: str) -> None:
    """Make sure that there is such a resource.

    Raises:
        UserError: there is none.
    """
    if not any(resource["urn"] == urn for resource in resources):
        raise UserError(
            f"no such resource {urn!r} exists in the current state;"
            " `stack --show-urns` lists what there is"
        )


def needs(resource: Resource) -> set[str]:
    """The URNs that a resource of a state cannot be without."""
    found = {resource.get("parent"), resource.get("deletedWith")}
    found |= set(resource.get("dependencies") or ())
    found |= {u for us in (resource.get("propertyDependencies") or {}).values() for u in us or ()}
    found.add(str(resource.get("provider") or "").rpartition("::")[0])
    return {str(urn) for urn in found if urn}


def without(resources: Resources, urn: str, *, force: bool, dependents: bool) -> Resources:
    """The resources less one, or less all that need it as well.

    Raises:
        UserError: it is not there, something needs it, or it is protected.
    """
    find(resources, urn)
    gone = {urn}
    users = []
    for resource in resources:
        if resource["urn"] not in gone and needs(resource) & gone:
            users.append(str(resource["urn"]))
            if dependents:
                gone.add(resource["urn"])
    if users and not dependents:
        listed = "\n".join(f"  * {user}" for user in users)
        raise UserError(
            f"{urn} can't be safely deleted because the following resources depend on it:\n{listed}"
            "\nDelete those resources first or pass --target-dependents."
        )
    for resource in resources:
        if resource["urn"] in gone and resource.get("protect") and not force:
            raise UserError(
                f"{resource['urn']} can't be safely deleted because it is protected."
                " Run `state unprotect` first, or pass --force"
            )
    return [resource for resource in resources if resource["urn"] not in gone]


def marked(resources: Resources, urns_: Sequence[str], mark: str, *, on: bool) -> Resources:
    """The resources with `mark` (``protect``, ``taint``) set or dropped; no URNs: on all.

    Raises:
        UserError: a resource is not there.
    """
    for urn in urns_:
        find(resources, urn)
    return [_marked(r, mark, on=on) if not urns_ or r["urn"] in urns_ else r for r in resources]


def _marked(resource: Resource, mark: str, *, on: bool) -> dict[str, Any]:
    rest = {key: value for key, value in resource.items() if key != mark}
    return {**rest, mark: True} if on and not resource.get("delete") else rest


def renamed(resources: Resources, urn: str, name: str) -> Resources:
    """The resources with another name of one, and all that speaks of it following.

    Children keep their names; what their URNs say of the parent is its type, which stays.

    Raises:
        UserError: it is not there, or the new name is taken or empty.
    """
    if not name:
        raise UserError("the new name of a resource cannot be empty")
    find(resources, urn)
    if urns.is_stack(urn):
        raise UserError("the stack itself gets another name with `stack rename`")
    new = "::".join((*urn.split("::", 3)[:3], name))
    if new == urn:
        return resources
    if any(resource["urn"] == new for resource in resources):
        raise UserError(f"a resource {new!r} exists already; choose another name")
    return [
        _spoken_of(resource, lambda text: new if text == urn else text) for resource in resources
    ]


def _spoken_of(resource: Resource, new: Callable[[str], str]) -> dict[str, Any]:
    """A resource with every URN in it replaced; its properties are the program's own data."""
    document = dict(resource)
    document["urn"] = new(document["urn"])
    for key in ("parent", "deletedWith"):
        if document.get(key):
            document[key] = new(document[key])
    for key in ("dependencies", "replaceWith"):
        if document.get(key):
            document[key] = [new(urn) for urn in document[key]]
    if properties := document.get("propertyDependencies"):
        document["propertyDependencies"] = {
            key: None if value is None else [new(urn) for urn in value]
            for key, value in properties.items()
        }
    if document.get("provider"):
        urn, _, id_ = document["provider"].rpartition("::")
        document["provider"] = f"{new(urn)}::{id_}"
    return document


# -- repair ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Repair:
    """A valid order of the resources, and what was done for it, in words; empty: nothing."""

    resources: Resources
    notes: tuple[str, ...]


def faults(resources: Sequence[Resource]) -> list[str]:
    """What is wrong with the references and the order; nothing if all is well."""
    found = []
    everywhere = {str(r["urn"]) for r in resources}
    before: set[str] = set()
    for resource in resources:
        for urn in sorted(needs(resource) - before):
            what = "comes after it" if urn in everywhere else "is not in the state"
            found.append(f"{resource['urn']} refers to {urn}, which {what}")
        before.add(str(resource["urn"]))
    return found


def repaired(resources: Resources) -> Repair:
    """The resources with references to what is gone dropped, each behind what it needs.

    Raises:
        UserError: resources need each other in a circle, or a provider is gone.
    """
    everywhere = {str(r["urn"]) for r in resources}
    notes: list[str] = []
    pruned = [_pruned(resource, everywhere, notes) for resource in resources]
    ordered: Resources = []
    placed: set[str] = set()
    waiting = pruned
    while waiting:
        ready = [r for r in waiting if needs(r) <= placed | {r["urn"]}]
        if not ready:
            names = ", ".join(str(r["urn"]) for r in waiting)
            raise UserError(
                "the state cannot be repaired: these resources need each other in a circle:"
                f" {names}; edit the result of `stack export` and import it"
            )
        first = ready[0]
        ordered.append(first)
        placed.add(str(first["urn"]))
        waiting = [r for r in waiting if r is not first]
    if [r["urn"] for r in ordered] != [r["urn"] for r in resources]:
        notes.append("resources were put behind what they need")
    return Repair(ordered, tuple(notes))


def _pruned(resource: Resource, known: Iterable[str], notes: list[str]) -> dict[str, Any]:
    there = set(known)
    document = dict(resource)
    missing = needs(resource) - there
    if not missing:
        return document
    provider = str(document.get("provider") or "").rpartition("::")[0]
    if provider and provider not in there:
        raise UserError(
            f"the state cannot be repaired: {document['urn']} has the provider {provider}, which is"
            " not in the state; edit the result of `stack export` and import it"
        )
    document["dependencies"] = [u for u in document.get("dependencies") or () if u in there]
    document["propertyDependencies"] = {
        key: [u for u in value or () if u in there]
        for key, value in (document.get("propertyDependencies") or {}).items()
    }
    if document.get("deletedWith") not in there:
        document.pop("deletedWith", None)
    if document.get("parent") and document["parent"] not in there:
        root = next((u for u in sorted(there) if urns.is_stack(u)), None)
        document.pop("parent")
        if root and document["urn"] != root:
            document["parent"] = root
    notes.append(f"{document['urn']} no longer refers to {', '.join(sorted(missing))}")
    return {key: value for key, value in document.items() if value not in ([], {})}
