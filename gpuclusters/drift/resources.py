"""From what the engine saw to findings: each type of resource has a reader, all others a general one.

Another cluster type adds its own readers to `READERS`; nothing else here knows of types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuclusters.drift import cluster_resources, host_resources
from gpuclusters.drift.engine import Reader, Seen, View, property_lines
from gpuclusters.drift.finding import Finding
from gpuclusters.review.plan import KEPT, is_component


def _silent(seen: Seen, *, up: bool | None) -> Iterator[Finding]:  # noqa: ARG001
    """Told by others: tenancies are looked at closer."""
    yield from ()


READERS: Final[Mapping[str, Reader]] = {
    f"{KEPT}HostBoot": host_resources.converging("boot"),
    f"{KEPT}VfioBinding": host_resources.converging("vfio"),
    f"{KEPT}Preflight": host_resources.machine,
    f"{KEPT}FleetPreflight": host_resources.fleet,
    f"{KEPT}CdiSpec": host_resources.converging("cdi"),
    f"{KEPT}HostFile": host_resources.converging("host"),
    f"{KEPT}ServiceVm": host_resources.service_vm,
    f"{KEPT}FabricPartitions": host_resources.fabric,
    f"{KEPT}GpuDriver": host_resources.converging("driver"),
    f"{KEPT}Rke2Node": host_resources.converging("rke2"),
    f"{KEPT}RootlessHost": host_resources.converging("rootless"),
    f"{KEPT}UsernetesNode": host_resources.converging("usernetes"),
    f"{KEPT}MigLayout": cluster_resources.mig,
    f"{KEPT}GpuReadiness": cluster_resources.readiness,
    f"{KEPT}PluginGate": cluster_resources.readiness,
    f"{KEPT}TenancyPolicy": _silent,
    cluster_resources.HELM_RELEASE: cluster_resources.release,
}
"""By type of resource."""


def findings(view: View) -> Iterator[Finding]:
    """What all resources tell."""
    for urn, seen in view.resources.items():
        yield from reader_of(seen.old.type)(seen, up=view.mended(urn))


def reader_of(type_: str) -> Reader:
    """The reader of a type."""
    if cluster_resources.is_object(type_):
        return cluster_resources.cluster_object
    return READERS.get(type_, general)


def general(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """A resource of which nothing more is known: its own sentences about drift, else its inputs."""
    if seen.old.type.startswith("pulumi:") or is_component(seen.old.type):
        return  # components and providers are nowhere but in the state
    where, what = seen.host or "stack", f"{seen.old.kind} {seen.old.name}"
    if seen.new is None:
        yield Finding(
            "stack.resource-missing", where, what, "as made by `up`", "gone", up=up, urn=seen.urn
        )
        return
    lines = (*_drift(seen), *property_lines(seen))
    if lines:
        yield Finding(
            "stack.resource-changed",
            where,
            what,
            "as left by `up`",
            lines[0] if len(lines) == 1 else f"{len(lines)} differences",
            up=up,
            urn=seen.urn,
            details=lines if len(lines) > 1 else (),
        )


def _drift(seen: Seen) -> tuple[str, ...]:
    outputs: Mapping[str, Any] = seen.new.outputs if seen.new is not None else {}
    said: list[str] = []
    for key in ("drift", "stale", "findings", "missing"):
        value = outputs.get(key)
        if value and value != seen.old.outputs.get(key):
            said += map(str, value) if isinstance(value, list) else [f"{key}: {value}"]
    return tuple(said)
