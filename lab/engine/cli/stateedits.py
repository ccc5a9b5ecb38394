"""Changes of a state by hand, on its resources as they stand in the checkpoint: no effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.engine.usererror import UserError

Resource = Mapping[str, Any]
Resources = list[dict[str, Any]]


def find(resources: Sequence[Resource], urn: str) -> None:
    """Make sure that there is such a resource."""
    if not any(resource["urn"] == urn for resource in resources):
        raise UserError(
            f"no such resource {urn!r} exists in the current state;"
            " `stack export` has what there is"
        )


def needs(resource: Resource) -> set[str]:
    """The URNs that a resource of a state cannot be without."""
    found = {resource.get("parent"), resource.get("deletedWith")}
    found |= set(resource.get("dependencies") or ())
    found |= {u for us in (resource.get("propertyDependencies") or {}).values() for u in us or ()}
    found.add(str(resource.get("provider") or "").rpartition("::")[0])
    return {str(urn) for urn in found if urn}


def without(resources: Resources, urn: str, *, force: bool, dependents: bool) -> Resources:
    """The resources less one, or less all that need it as well."""
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


def unprotected(resources: Resources, urns: Sequence[str]) -> Resources:
    """The resources without the protection of these, or of all if none is named."""
    for urn in urns:
        find(resources, urn)
    return [
        {key: value for key, value in resource.items() if key != "protect"}
        if not urns or resource["urn"] in urns
        else resource
        for resource in resources
    ]
