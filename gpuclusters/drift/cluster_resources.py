"""What the resources of the cluster tell: objects that Pulumi made, and what waits for the operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuclusters.drift import comparing
from gpuclusters.drift.engine import Seen
from gpuclusters.drift.finding import Finding

_MOST_LINES = 12
_KUBERNETES = "kubernetes:"
HELM_RELEASE = "kubernetes:helm.sh/v3:Release"
FIELD_MANAGER = "gpu-clusters"
_ADMISSION = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


def is_object(type_: str) -> bool:
    """Whether a resource is one object of the cluster."""
    return type_.startswith(_KUBERNETES) and type_ != HELM_RELEASE


def reference(seen: Seen) -> tuple[str, str, str, str]:
    """`apiVersion`, kind, namespace and name of the object of a resource."""
    metadata: Mapping[str, Any] = seen.old.outputs.get("metadata") or {}
    return (
        str(seen.old.at("apiVersion") or ""),
        str(seen.old.at("kind") or seen.old.kind),
        str(metadata.get("namespace") or seen.old.at("metadata", "namespace") or ""),
        str(metadata.get("name") or seen.old.at("metadata", "name") or seen.old.name),
    )


def cluster_object(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """An object that the stack declares, or a part of one (`NodePatch`)."""
    _, kind, namespace, name = reference(seen)
    where, what = namespace or "cluster", f"{kind} {name}"
    admission = kind in _ADMISSION
    if seen.new is None:
        id_ = "tenant.admission-policy-changed" if admission else "stack.object-missing"
        if kind == "Node":
            id_, where = "node.missing", name
        yield Finding(id_, where, what, "the object", "no such object", up=up, urn=seen.urn)
        return
    fields = changed_fields(seen)
    if not fields:
        return
    if kind == "Node":
        yield from _node(seen, name, fields, up=up)
        return
    lines = tuple(field.line for field in fields)
    yield Finding(
        "tenant.admission-policy-changed" if admission else "stack.object-changed",
        where,
        what,
        "as applied by `up`",
        lines[0] if len(lines) == 1 else f"{len(lines)} fields differ",
        up=up,
        urn=seen.urn,
        details=() if len(lines) == 1 else _few(lines),
    )


def changed_fields(seen: Seen) -> list[comparing.Field]:
    """Fields that are not as declared, and were when the object was applied.

    Some never are: a server writes them in its own way, and so they stand in the state.
    """
    if seen.new is None:
        return []
    before = {
        (field.path, comparing.shown(field.path, field.found))
        for field in comparing.differing(seen.old.inputs, seen.old.outputs)
        if not field.gone
    }
    never = {
        field.path for field in comparing.differing(seen.old.inputs, seen.old.outputs) if field.gone
    }
    return [
        field
        for field in comparing.differing(seen.old.inputs, seen.new.outputs)
        if (field.path, "" if field.gone else comparing.shown(field.path, field.found))
        not in before
        and not (field.gone and field.path in never)
    ]


def in_the_way(seen: Seen, managers: Iterable[str]) -> list[str]:
    """Managers at which `up` stops: server-side apply takes no field from another.

    pulumi-kubernetes takes over what kubectl has changed in an object of its own, and nothing in a patch.
    """
    own = ("pulumi-kubernetes", FIELD_MANAGER)
    taken = own if seen.old.type.endswith("Patch") else (*own, "kubectl")
    return sorted(manager for manager in managers if not manager.startswith(taken))


def _node(
    seen: Seen, name: str, fields: list[comparing.Field], *, up: bool | None
) -> Iterator[Finding]:
    for field in fields:
        key = field.path[-1]
        if field.path[:2] == ("metadata", "labels"):
            yield Finding(
                "node.label-missing" if field.gone else "node.label-changed",
                name,
                f"label {key}",
                f"{key}={field.declared}",
                "no such label" if field.gone else f"{key}={field.found}",
                up=up,
                urn=seen.urn,
            )
        else:
            yield Finding(
                "stack.object-changed",
                name,
                f"Node {name}",
                field.name,
                field.line,
                up=up,
                urn=seen.urn,
            )


def release(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """A Helm release as a whole; its objects are compared elsewhere."""
    status: Mapping[str, Any] = seen.old.outputs.get("status") or {}
    name = str(seen.old.at("name") or status.get("name") or seen.old.name)
    namespace = str(seen.old.at("namespace") or status.get("namespace") or "default")
    if seen.new is None:
        yield Finding(
            "helm.release-missing", namespace, name, "deployed", "no release", up=up, urn=seen.urn
        )
        return
    live: Mapping[str, Any] = seen.new.outputs.get("status") or {}
    if live.get("status") not in (None, "deployed"):
        yield Finding(
            "helm.release-not-deployed",
            namespace,
            name,
            "deployed",
            str(live["status"]),
            up=up,
            urn=seen.urn,
        )
    changed = [
        f"{key} {live.get(key)} instead of {status.get(key)}"
        for key in ("chart", "version", "revision")
        if status.get(key) is not None and live.get(key) != status.get(key)
    ]
    if changed:
        yield Finding(
            "helm.release-changed",
            namespace,
            name,
            f"{status.get('chart')} {status.get('version')}, revision {status.get('revision')}",
            "; ".join(changed),
            up=up,
            urn=seen.urn,
        )


def mig(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """MigLayout: how the GPUs of a node are cut."""
    node, layout = str(seen.old.at("node")), str(seen.old.at("layout"))
    if seen.new is None:
        yield Finding(
            "node.missing", node, f"Node {node}", "in the cluster", "no such node", urn=seen.urn
        )
        return
    for one in seen.new.outputs.get("drift") or ():
        code, problem = one["code"], one["problem"]
        yield Finding(code, node, "MIG layout", layout, problem, up=up, urn=seen.urn)


def readiness(seen: Seen, *, up: bool | None) -> Iterator[Finding]:  # noqa: ARG001
    """GpuReadiness: what the operator's validator says of every GPU. `up` waits for it, and mends nothing."""
    for one in (seen.new.outputs.get("drift") or ()) if seen.new is not None else ():
        where = one["path"][0] if one["path"] else "cluster"
        yield Finding(one["code"], where, "GPUs", "all ready", one["problem"], urn=seen.urn)


def _few(lines: tuple[str, ...]) -> tuple[str, ...]:
    if len(lines) <= _MOST_LINES:
        return lines
    return (*lines[:_MOST_LINES], f"… and {len(lines) - _MOST_LINES} more")
