"""From what the engine saw to findings: each type of resource has a reader, all others a general one.

Another cluster type adds its own readers to `READERS`; nothing else here knows of types. What a reader says
nothing about, `up` puts back if it acts on the resource at all; `up=False` is what it never mends.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpuclusters.core import codes
from gpuclusters.core.finding import Level
from gpuclusters.drift import comparing
from gpuclusters.drift.engine import Seen, View, property_lines
from gpuclusters.drift.report import Finding, of_lines
from gpuclusters.preflight.decide import AREA, ONLY_BARE
from gpuclusters.review.plan import HELM_RELEASE, KEPT, Resource, is_component

Reader = Callable[[Seen], Iterable[Finding]]
FIELD_MANAGER = "gpu-clusters"
_ADMISSION = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
_PREFLIGHT: Final = {
    "preflight.driver-loaded": "driver.installed",
    "preflight.driver-installed": "driver.installed",
    "preflight.off-the-bus": "driver.gpu-count",
    "preflight.function-missing": "driver.gpu-count",
}
"""What a preflight finds that has a name of its own here."""


def findings(view: View) -> Iterator[Finding]:
    for seen in view.resources.values():
        yield from of_resource(view, seen)


def of_resource(view: View, seen: Seen) -> Iterator[Finding]:
    """What one resource tells, none where it is as declared."""
    up = view.mended(seen.urn)
    type_ = seen.old.type
    read = cluster_object if is_object(type_) else READERS.get(type_, general)
    for one in read(seen):
        yield replace(one, urn=seen.urn, up=up if one.up is None else one.up)


def general(seen: Seen) -> Iterator[Finding]:
    """A resource of which nothing more is known: its own sentences about drift, else its inputs."""
    if seen.old.type.startswith("pulumi:") or is_component(seen.old.type):
        return  # components and providers are nowhere but in the state
    where, what = seen.host or "stack", f"{seen.old.kind} {seen.old.name}"
    if seen.new is None:
        yield Finding("stack.resource-missing", where, what, "as made by `up`", "gone")
    elif lines := (*_said(seen, seen.new), *property_lines(seen)):
        yield of_lines("stack.resource-changed", where, what, "as left by `up`", lines)


def _said(seen: Seen, new: Resource) -> Iterator[str]:
    for key in ("drift", "stale", "findings", "missing"):
        value = new.outputs.get(key)
        if value and value != seen.old.outputs.get(key):
            yield from map(str, value) if isinstance(value, list) else (f"{key}: {value}",)


def converging(area: str) -> Reader:
    """A resource that tells its drift as findings of an area."""

    def read(seen: Seen) -> Iterator[Finding]:
        what = str(seen.old.at("path") or seen.old.name)
        if seen.new is None:
            yield Finding(f"{area}.missing", seen.host, what)
            return
        found = seen.new.outputs.get("drift") or ()
        details = property_lines(seen) if len(found) == 1 else ()
        for one in found:
            # What blocks `up`, or is only told, is nothing that `up` puts back.
            up = None if one["level"] == Level.REPAIR else False
            thing, said = one["path"][-1] if one["path"] else what, one["problem"]
            yield Finding(
                one["code"], seen.host, thing, "as left by `up`", said, up=up, details=details
            )

    return read


def machine(seen: Seen) -> Iterator[Finding]:
    """Preflight: whether a prepared machine is fit. What it finds, `up` refuses; it does not mend it."""
    yield from _unfit(seen.host, _output(seen, "findings"), "fit for virtual machines")


def fleet(seen: Seen) -> Iterator[Finding]:
    """FleetPreflight: what keeps a machine from being prepared, and is not told of the prepared machine."""
    for host, all_of_it in dict(_output(seen, "findings")).items():
        found = [one for one in all_of_it if one["code"].removeprefix(AREA) in ONLY_BARE]
        yield from _unfit(host, found, "fit to be prepared")


def _unfit(host: str, found: Iterable[Mapping[str, Any]], declared: str) -> Iterator[Finding]:
    for one in found:
        code, do = one["code"], codes.of(one["code"]).do
        kind = _PREFLIGHT.get(code, "host.unfit")
        yield Finding(kind, host, code, declared, one["problem"], up=False, do=do)


def _output(seen: Seen, key: str) -> Any:
    return (seen.new.outputs.get(key) or ()) if seen.new else ()


def service_vm(seen: Seen) -> Iterator[Finding]:
    """ServiceVm: the VM with the NVSwitches, and the run of the fabric manager in it."""
    yield from converging("service-vm")(seen)
    if seen.new is None:
        return
    name, before, after = str(seen.old.at("name")), seen.old.outputs, seen.new.outputs
    if after.get("state") == "waiting-for-list" != before.get("state"):
        kind, declared, found = "fabric.manager-not-ready", before.get("state"), after["state"]
    elif after.get("state") == "ready" and before.get("run") and before["run"] != after.get("run"):
        kind = "fabric.manager-restarted"
        declared, found = "the run that was told which partitions are active", "another run"
    else:
        return
    yield Finding(kind, seen.host, name, str(declared), found)


def fabric(seen: Seen) -> Iterator[Finding]:
    """FabricPartitions: which are active. What leases have down for a while counts as active there."""
    if seen.new is None:
        return
    declared = seen.old.at("partitions")
    if declared is None:
        declared = seen.old.outputs.get("applied")
    active, wanted = _numbers(seen.new.outputs.get("active")), _numbers(declared)
    board = str(seen.old.at("board"))
    for number in sorted(wanted ^ active):
        what, missing = f"partition {number} of {board}", number in wanted
        kind = "fabric.partition-inactive" if missing else "fabric.partition-foreign"
        sides = ("active", f"active are {_listed(active)}")
        sides = sides if missing else (f"active are {_listed(wanted)}", "active")
        yield Finding(kind, seen.host, what, *sides)
    before = set(seen.old.outputs.get("warnings") or ())
    for line in sorted({*_output(seen, "warnings")} - before):
        yield Finding("fabric.warning", seen.host, board, found=line, up=False)


def _numbers(value: Any) -> set[int]:
    return {int(n) for n in value or () if isinstance(n, int | float)}


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"


def is_object(type_: str) -> bool:
    """Whether a resource is one object of the cluster."""
    return type_.startswith("kubernetes:") and type_ != HELM_RELEASE


def reference(resource: Resource) -> tuple[str, str, str, str]:
    """`apiVersion`, kind, namespace and name of the object of a resource."""
    metadata: Mapping[str, Any] = resource.outputs.get("metadata") or {}
    return (
        str(resource.at("apiVersion") or ""),
        str(resource.at("kind") or resource.kind),
        str(metadata.get("namespace") or resource.at("metadata", "namespace") or ""),
        str(metadata.get("name") or resource.at("metadata", "name") or resource.name),
    )


def cluster_object(seen: Seen) -> Iterator[Finding]:
    """An object that the stack declares, or a part of one (`NodePatch`)."""
    _, kind, namespace, name = reference(seen.old)
    where, what = namespace or "cluster", f"{kind} {name}"
    admission = "tenant.admission-policy-changed" if kind in _ADMISSION else ""
    fields = changed_fields(seen)
    if seen.new is None:
        code = admission or "stack.object-missing"
        code, where = ("node.missing", name) if kind == "Node" else (code, where)
        yield Finding(code, where, what, "the object", "no such object")
    elif kind == "Node":
        yield from (_of_node(name, field) for field in fields)
    elif fields:
        lines = [field.line for field in fields]
        yield of_lines(
            admission or "stack.object-changed", where, what, "as applied by `up`", lines
        )


def _of_node(name: str, field: comparing.Field) -> Finding:
    if field.path[:2] != ("metadata", "labels"):
        return Finding("stack.object-changed", name, f"Node {name}", field.name, field.line)
    return label(name, field.path[-1], str(field.declared), None if field.gone else field.found)


def label(node: str, key: str, wanted: str, found: Any, by: str = "") -> Finding:
    """A label of a node that is missing (None), or another."""
    code = "node.label-missing" if found is None else "node.label-changed"
    said = "no such label" if found is None else f"{key}={found}"
    return Finding(code, node, f"label {key}", f"{key}={wanted}", said, by=by)


def changed_fields(seen: Seen) -> list[comparing.Field]:
    """Fields that are not as declared, and were when the object was applied.

    Some never are: a server writes them in its own way, and so they stand in the state.
    """
    if seen.new is None:
        return []
    before = {_as_found(field) for field in comparing.differing(seen.old.inputs, seen.old.outputs)}
    now = comparing.differing(seen.old.inputs, seen.new.outputs)
    return [field for field in now if _as_found(field) not in before]


def _as_found(field: comparing.Field) -> tuple[comparing.Path, str | None]:
    return field.path, None if field.gone else comparing.shown(field.path, field.found)


def in_the_way(seen: Seen, managers: Iterable[str]) -> list[str]:
    """Managers at which `up` stops: server-side apply takes no field from another.

    pulumi-kubernetes takes over what kubectl has changed in an object of its own, and nothing in a patch.
    """
    own = ("pulumi-kubernetes", FIELD_MANAGER)
    taken = own if seen.old.type.endswith("Patch") else (*own, "kubectl")
    return sorted(manager for manager in managers if not manager.startswith(taken))


def release(seen: Seen) -> Iterator[Finding]:
    """A Helm release as a whole; its objects are compared elsewhere."""
    place = seen.old.release
    if seen.new is None:
        yield Finding("helm.release-missing", *place, "deployed", "no release")
        return
    status: Mapping[str, Any] = seen.old.outputs.get("status") or {}
    live: Mapping[str, Any] = seen.new.outputs.get("status") or {}
    if live.get("status") not in (None, "deployed"):
        yield Finding("helm.release-not-deployed", *place, "deployed", str(live["status"]))
    changed = [
        f"{key} {live.get(key)} instead of {status.get(key)}"
        for key in ("chart", "version", "revision")
        if status.get(key) is not None and live.get(key) != status.get(key)
    ]
    if changed:
        was = f"{status.get('chart')} {status.get('version')}, revision {status.get('revision')}"
        yield Finding("helm.release-changed", *place, was, "; ".join(changed))


def mig(seen: Seen) -> Iterator[Finding]:
    """MigLayout: how the GPUs of a node are cut."""
    node, layout = str(seen.old.at("node")), str(seen.old.at("layout"))
    if seen.new is None:
        yield Finding(
            "node.missing", node, f"Node {node}", "in the cluster", "no such node", up=False
        )
    for one in _output(seen, "drift"):
        yield Finding(one["code"], node, "MIG layout", layout, one["problem"])


def readiness(seen: Seen) -> Iterator[Finding]:
    """GpuReadiness: what the operator's validator says of every GPU. `up` waits for it, and mends nothing."""
    for one in _output(seen, "drift"):
        where = one["path"][0] if one["path"] else "cluster"
        yield Finding(one["code"], where, "GPUs", "all ready", one["problem"], up=False)


READERS: Final[Mapping[str, Reader]] = {
    f"{KEPT}HostBoot": converging("boot"),
    f"{KEPT}VfioBinding": converging("vfio"),
    f"{KEPT}Preflight": machine,
    f"{KEPT}FleetPreflight": fleet,
    f"{KEPT}CdiSpec": converging("cdi"),
    f"{KEPT}HostFile": converging("host"),
    f"{KEPT}ServiceVm": service_vm,
    f"{KEPT}FabricPartitions": fabric,
    f"{KEPT}GpuDriver": converging("driver"),
    f"{KEPT}Rke2Node": converging("rke2"),
    f"{KEPT}RootlessHost": converging("rootless"),
    f"{KEPT}UsernetesNode": converging("usernetes"),
    f"{KEPT}MigLayout": mig,
    f"{KEPT}GpuReadiness": readiness,
    f"{KEPT}PluginGate": readiness,
    f"{KEPT}TenancyPolicy": lambda _: (),  # tenancies are looked at closer
    HELM_RELEASE: release,
}
