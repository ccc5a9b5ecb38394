"""Server-side apply: one object, one field manager, conflicts that name who else owns a field."""

import copy
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.answers import ProviderError
from engine.stand_ins.kubernetes.client import APPLY, JSON_PATCH, Api, ApiError, ApiResource
from engine.stand_ins.kubernetes.objects import (
    FIELD_MANAGER,
    Object,
    annotation,
    metadata_of,
    name_of,
    namespace_of,
    title,
)
from engine.stand_ins.values import Properties

_MANAGER_PREFIX: Final = "pulumi-kubernetes-"
_CREATOR: Final = "pulumi-kubernetes"
_TRIES: Final = 5
_MANAGER_IN_MESSAGE: Final = re.compile(r'conflict with "([^"]+)"')

# Managers whose plain updates the next apply takes over, as the real provider does: it itself at creation,
# and people with kubectl. Without this, a field removed from the program would stay in the object.
_TAKEN_OVER: Final = (
    "kubectl",
    "before-first-apply",
    "pulumi-kubernetes",
    "pulumi-resource-kubernetes",
)


class Conflict(ProviderError):  # noqa: N818 - the API's own term
    """Other field managers own fields with other values; `owners` are their names."""

    def __init__(self, message: str, owners: Sequence[str]) -> None:
        super().__init__(message)
        self.owners = owners

    @property
    def would_be_taken_over(self) -> bool:
        """Whether only those managers are in the way whose updates `take_over` folds in."""
        return all(owner.startswith(_TAKEN_OVER) for owner in self.owners)


@dataclass(frozen=True)
class Applied:
    """The object after an apply (or as it would be), and what the server warned of."""

    live: Object
    warnings: Sequence[str]


def field_manager(outputs: Properties, inputs: Object) -> str:
    """Who applies this resource: the annotation, else the state, else a name drawn now.

    As in the real provider. So a create that was interrupted has another manager when it is run again, unless
    the program names one.
    """
    wanted = annotation(inputs, "pulumi.com/patchFieldManager")
    if wanted:
        return wanted
    recorded = outputs.get(FIELD_MANAGER)
    if isinstance(recorded, str) and recorded:
        return recorded
    return _MANAGER_PREFIX + secrets.token_hex(4)


def create(api: Api, resource: ApiResource, obj: Object, *, dry_run: bool = False) -> Applied:
    """Make `obj` by POST, under the one manager's name that the real provider has for it.

    The first update moves these fields to the resource's own manager (`take_over`).

    Raises:
        ApiError: the server refused; 409 with reason AlreadyExists if there is such an object.
        Unreachable: no answer.
    """
    query = {"fieldManager": _CREATOR, **({"dryRun": "All"} if dry_run else {})}
    return Applied(*api.request("POST", resource.path(namespace_of(obj)), query=query, body=obj))


def replace(
    api: Api,
    resource: ApiResource,
    obj: Object,
    live: Object,
    manager: str,
    *,
    dry_run: bool = False,
) -> Applied:
    """Put `obj` in the place of `live`: what it does not say is gone (definitions are updated so).

    Raises:
        ApiError: the server refused.
        Unreachable: no answer.
    """
    query = {"fieldManager": manager, **({"dryRun": "All"} if dry_run else {})}
    version = metadata_of(live).get("resourceVersion")
    body = {**obj, "metadata": {**metadata_of(obj), "resourceVersion": version}}
    path = resource.path(namespace_of(obj), name_of(obj))
    return Applied(*api.request("PUT", path, query=query, body=body))


def apply(
    api: Api,
    resource: ApiResource,
    obj: Object,
    manager: str,
    *,
    force: bool = False,
    dry_run: bool = False,
) -> Applied:
    """Create or update `obj` by server-side apply.

    Raises:
        Conflict: a field belongs to another manager.
        ApiError: the server refused for another reason.
        Unreachable: no answer.
    """
    query = {
        "fieldManager": manager,
        "force": "true" if force else "false",
        "fieldValidation": "Warn",
    }
    if dry_run:
        query["dryRun"] = "All"
    path = resource.path(namespace_of(obj), name_of(obj))
    try:
        live, warnings = api.request("PATCH", path, query=query, body=obj, content_type=APPLY)
    except ApiError as error:
        if error.status == 409 and _conflicts(error):
            raise _conflict(obj, error) from error
        raise
    return Applied(live, warnings)


def forced(obj: Object) -> bool:
    """Whether fields of other managers are to be taken over."""
    return annotation(obj, "pulumi.com/patchForce") == "true"


def take_over(api: Api, resource: ApiResource, live: Object, manager: str) -> None:
    """Make `manager` the owner of what plain updates by kubectl and by creates had set."""
    for tries_left in reversed(range(_TRIES)):
        try:
            _take_over(api, resource, live, manager)
        except ApiError as error:
            # Controllers write to an object at any time.
            now = api.get(resource, namespace_of(live), name_of(live))
            if error.status != 409 or now is None or not tries_left:
                raise
            live = now
        else:
            return


def _take_over(api: Api, resource: ApiResource, live: Object, manager: str) -> None:
    entries = metadata_of(live).get("managedFields") or []
    merged = merged_ownership(entries, manager)
    if merged is None:
        return
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": merged},
        # Refuse to write over an ownership that changed in between.
        {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": metadata_of(live).get("resourceVersion"),
        },
    ]
    path = resource.path(namespace_of(live), name_of(live))
    api.request("PATCH", path, body=patch, content_type=JSON_PATCH)


def merged_ownership(
    entries: Sequence[Mapping[str, Any]], manager: str
) -> list[dict[str, Any]] | None:
    """`managedFields` with the entries to take over folded into the manager's own; None if there are none."""
    ours = [entry for entry in entries if _is_taken_over(entry)]
    if not ours:
        return None
    own = [e for e in entries if e.get("manager") == manager and e.get("operation") == "Apply"]
    fields: dict[str, Any] = {}
    for entry in (*own, *ours):
        fields = _merged(fields, entry.get("fieldsV1") or {})
    template = (own or ours)[0]
    mine = {
        **{key: value for key, value in template.items() if key != "subresource"},
        "manager": manager,
        "operation": "Apply",
        "fieldsV1": fields,
    }
    return [copy.deepcopy(dict(e)) for e in entries if e not in own and e not in ours] + [mine]


def _is_taken_over(entry: Mapping[str, Any]) -> bool:
    return (
        entry.get("operation") == "Update"
        and not entry.get("subresource")
        and str(entry.get("manager", "")).startswith(_TAKEN_OVER)
    )


def _merged(left: dict[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(left)
    for key, value in right.items():
        known = merged.get(key)
        merged[key] = _merged(known, value) if isinstance(known, dict) else value
    return merged


def _conflicts(error: ApiError) -> list[Mapping[str, Any]]:
    return [cause for cause in error.causes if cause.get("reason") == "FieldManagerConflict"]


def _conflict(obj: Object, error: ApiError) -> Conflict:
    owners: dict[str, list[str]] = {}
    for cause in _conflicts(error):
        match = _MANAGER_IN_MESSAGE.search(str(cause.get("message", "")))
        owner = match.group(1) if match else str(cause.get("message"))
        owners.setdefault(owner, []).append(str(cause.get("field", "")))
    parts = [f"{', '.join(fields)} of {owner!r}" for owner, fields in owners.items()]
    return Conflict(
        f"{title(obj)} was not changed: fields belong to another field manager ({'; '.join(parts)}). "
        "Leave those fields out of the program, make their owner let go, or take them over with the "
        'annotation pulumi.com/patchForce: "true"',
        list(owners),
    )
