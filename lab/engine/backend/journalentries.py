"""Entries of a journal as JSON, and a state with the entries of its journal folded in.

Secrets are encrypted here as in the state itself, so no passphrase is needed to fold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.engine.backend.envelope import to_text
from lab.engine.journal import Base, Begin, End, Entry, JournalError, Merge, Pending

Document = Mapping[str, Any]
FORMAT = 1


def header(stack: str, id_: str) -> str:
    """The first record: whose journal this is."""
    return to_text({"journal": FORMAT, "id": id_, "stack": stack})


def encode(entry: Entry[str]) -> str:
    """An entry whose resources are JSON texts."""
    if isinstance(entry, Begin):
        operation = pending_text(entry.pending)
        return f'{{"kind":"begin","operationID":{entry.operation},"operation":{operation}}}'
    if isinstance(entry, Base):
        resources = ",".join(entry.resources)
        pending = ",".join(map(pending_text, entry.pending))
        return f'{{"kind":"base","resources":[{resources}],"pending_operations":[{pending}]}}'
    parts = ['"kind":"end"']
    if entry.operation is not None:
        parts.append(f'"operationID":{entry.operation}')
    if entry.removed:
        parts.append(f'"removed":{to_text(entry.removed)}')
    if entry.changed:
        changed = ",".join(f'"{number}":{text}' for number, text in entry.changed.items())
        parts.append(f'"changed":{{{changed}}}')
    if entry.new is not None:
        parts.append(f'"state":{entry.new}')
    if entry.kept is not None:
        parts.append(f'"kept":{entry.kept}')
    if entry.renames:
        parts.append(f'"renames":{to_text(entry.renames)}')
    return "{" + ",".join(parts) + "}"


def decode(record: Document) -> Entry[Document]:
    """The entry of a record.

    Raises:
        JournalError: it is of a kind that is not known.
    """
    kind = record.get("kind")
    if kind == "begin":
        return Begin(record["operationID"], pending(record["operation"]))
    if kind == "base":
        return Base(
            tuple(record["resources"]), tuple(pending(op) for op in record["pending_operations"])
        )
    if kind != "end":
        raise JournalError(f"an entry is of the unknown kind {kind!r}")
    return End(
        operation=record.get("operationID"),
        removed=tuple(record.get("removed") or ()),
        changed={int(number): state for number, state in (record.get("changed") or {}).items()},
        new=record.get("state"),
        kept=record.get("kept"),
        renames=record.get("renames") or {},
    )


def fold(deployment: Document, records: Iterable[Document]) -> dict[str, Any]:
    """A deployment after all entries of its journal.

    Raises:
        JournalError: the entries do not belong to it.
    """
    merge: Merge[Document] = Merge(
        deployment.get("resources") or (),
        map(pending, deployment.get("pending_operations") or ()),
    )
    for record in records:
        merge.apply(decode(record))
    rest = {k: v for k, v in deployment.items() if k not in ("resources", "pending_operations")}
    first = ("manifest", "secrets_providers")
    folded: dict[str, Any] = {k: rest.pop(k) for k in first if k in rest}
    if resources := renamed(merge.resources, merge.renames):
        folded["resources"] = list(resources)
    if merge.pending:
        folded["pending_operations"] = [
            {"resource": op.resource, "type": op.type, **op.extra} for op in merge.pending
        ]
    return {**folded, **rest}


def pending(document: Document) -> Pending[Document]:
    """A pending operation of a state."""
    extra = {k: v for k, v in document.items() if k not in ("resource", "type")}
    return Pending(document["type"], document["resource"], extra)


def pending_text(operation: Pending[str]) -> str:
    """A pending operation whose resource is JSON text."""
    extra = "".join(f",{to_text(k)}:{to_text(v)}" for k, v in operation.extra.items())
    return f'{{"resource":{operation.resource},"type":{to_text(operation.type)}{extra}}}'


def renamed_texts(texts: Sequence[str], names: Mapping[str, str]) -> Sequence[str]:
    """`renamed` for resources that are JSON texts."""
    if not names:
        return texts
    return [to_text(state) for state in renamed([json.loads(text) for text in texts], names)]


def renamed(resources: Sequence[Document], names: Mapping[str, str]) -> Sequence[Document]:
    """The resources with former URNs replaced wherever one of them speaks of another."""
    if not names:
        return resources
    return [_renamed(resource, names) for resource in resources]


def _renamed(resource: Document, names: Mapping[str, str]) -> dict[str, Any]:
    found = dict(resource)
    for key in ("parent", "deletedWith"):
        if found.get(key) in names:
            found[key] = names[found[key]]
    for key in ("dependencies", "replaceWith"):
        if found.get(key):
            found[key] = [names.get(urn, urn) for urn in found[key]]
    if found.get("propertyDependencies"):
        found["propertyDependencies"] = {
            key: [names.get(urn, urn) for urn in urns] if urns else urns
            for key, urns in found["propertyDependencies"].items()
        }
    urn, colons, id_ = str(found.get("provider") or "").rpartition("::")
    if urn in names:
        found["provider"] = f"{names[urn]}{colons}{id_}"
    return found
