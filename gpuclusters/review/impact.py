"""What a plan takes down: which tenants, GPUs, partitions, machines and data.

The rules of machines are in `impact_machines`; those of what is in a cluster are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gpuclusters.review import impact_machines as machines
from gpuclusters.review.diffing import OTHER_SECRET, differences
from gpuclusters.review.fleet import INSTANCE, RENTED, fleet
from gpuclusters.review.impact_machines import Case, Facts, Impact, Weight, verb
from gpuclusters.review.plan import KEPT, Action, Plan, Resource, Step
from gpuclusters.review.text import listed, plural

__all__ = ["Impact", "Weight", "impacts"]

Rule = Callable[[Case], Impact | None]
_MACHINE = "gpu-clusters:caas:GpuHost"
_OPENINGS = {
    "the internet": ("spec", "egress", "internet"),
    "the API server": ("spec", "egress", "apiServer"),
}


def impacts(plan: Plan) -> tuple[Impact, ...]:
    """What the steps of a plan take down, the worst first."""
    before = fleet(plan, after=False)
    facts = Facts(
        plan,
        tuple(sorted({tenant for known in before.values() for tenant in known.tenants})),
        {m.name: m.gpus for known in before.values() for m in known.machines.values()},
    )
    gone = [s for s in plan.steps if s.type == _MACHINE and s.action is Action.DELETE]
    leaving = {step.name for step in gone}
    found = [
        impact
        for step in plan.changed
        for impact in _of(facts, step)
        # That a machine leaves says it all.
        if step.action is not Action.DELETE or impact.machine not in leaving
    ]
    found += [machines.leaves(facts, step) for step in gone]
    return tuple(sorted(found, key=lambda i: (-i.weight, i.step.urn, i.says)))


def _of(facts: Facts, step: Step) -> Iterable[Impact]:
    if step.unprotected:
        says = "is no longer protected: from then on it can be deleted like anything else"
        yield Impact(Weight.DANGER, step, says)
    if step.is_component or step.action in (Action.ADOPT, Action.SAME, Action.READ):
        return
    if step.action is Action.CREATE:
        rule = _WHEN_MADE.get(step.type)
    else:
        rule = _RULES.get(step.type) or _by_prefix(step.type)
    old = step.new if step.action is Action.CREATE else step.old
    if old is None:
        return
    impact = rule(Case(facts, step, old, step.new)) if rule else None
    if impact is None and step.action in (Action.DELETE, Action.REPLACE):
        impact = Impact(Weight.LOOK, step, verb(step))
    if impact is not None:
        yield impact


def _by_prefix(type_: str) -> Rule | None:
    kind = type_.removeprefix(KEPT)
    if kind != type_ and "Driver" in kind:
        return machines.driver
    if kind != type_ and kind in ("HostFile", "Preflight", "FleetPreflight"):
        return _small
    if type_.startswith("gcp:compute/") and type_.endswith("Disk"):
        return _data("with all data on it")
    return None


def _tenancy(case: Case) -> Impact | None:
    tenant = case.old.text("tenant") or case.old.name
    gpus, new = _gpus_promised(case.old), _gpus_promised(case.new)
    if case.step.action is Action.DELETE:
        where = f"namespace {case.old.text('namespace') or tenant}"
        says = f"goes: {where} with all containers and volumes in it, and its {plural(gpus, 'GPU')}"
        return case.danger(f"tenant {tenant} {says}", gpus=gpus, tenant=tenant)
    if case.step.action is Action.REPLACE:
        says = f"tenant {tenant} {verb(case.step)}: all its containers end"
        return case.danger(says, gpus=gpus, tenant=tenant)
    if new < gpus:
        instead = f"{plural(new, 'GPU')} instead of {gpus}"
        return case.look(
            f"tenant {tenant} may hold {instead}; containers above that stay until they end"
        )
    if opened := [word for word, path in _OPENINGS.items() if _opens(case, path)]:
        return case.look(f"containers of {tenant} may reach {' and '.join(opened)}")
    lost = sorted(_sizes(case.old) - _sizes(case.new)) if case.new else []
    sizes = " or ".join(map(str, lost))
    says = f"tenant {tenant} can no longer ask for containers with {sizes} GPUs"
    return case.look(says) if lost else None


def _opens(case: Case, path: tuple[str, ...]) -> bool:
    return case.new is not None and case.new.at(*path) is True and case.old.at(*path) is not True


def _sizes(resource: Resource) -> set[int]:
    sizes = resource.at("spec", "sizes")
    found = sizes if isinstance(sizes, list) else []
    return {int(size) for size in found if isinstance(size, int | float)}


def _gpus_promised(resource: Resource | None) -> int:
    value = resource.at("spec", "gpus") if resource else None
    return int(value) if isinstance(value, int | float) else 0


def _data(what: str) -> Rule:
    """A rule for what holds something that only it has."""

    def rule(case: Case) -> Impact | None:
        return None if case.updates else case.danger(f"{verb(case.step)}, {what}")

    return rule


def _release(case: Case) -> Impact | None:
    chart = f"the chart {case.old.text('chart') or case.step.name}"
    if case.step.action is Action.DELETE:
        return case.danger(f"{chart} is uninstalled with all that it made")
    if case.step.action is Action.REPLACE:
        return case.danger(f"{chart} is uninstalled and installed again: what it runs pauses")
    was, will = case.old.text("version"), case.new.text("version") if case.new else None
    if was != will:
        return case.look(f"{chart} goes from {was} to {will}: its pods are rolled")
    if not any(d.path.startswith(("values", "valueYamlFiles")) for d in differences(case.step)):
        return None  # how long Helm waits, for example
    return case.look(f"{chart} gets other values: pods that read them are rolled")


def _workload(case: Case) -> Impact | None:
    if not case.updates:
        return case.look(f"{verb(case.step)}: its pods end")
    rolled = any(d.path.startswith("spec.template") for d in differences(case.step))
    return case.look("its pods are rolled") if rolled else None


def _secret(case: Case) -> Impact | None:
    if not case.updates:
        return case.look(f"{verb(case.step)}, with the secrets in it")
    fresh = [found.path for found in differences(case.step) if found.note == OTHER_SECRET]
    says = f"gets {plural(len(fresh), 'other secret')}: {listed(fresh)}"
    return case.look(says) if fresh else None


def _command(case: Case) -> Impact | None:
    if case.step.action is Action.DELETE:
        return Impact(Weight.NONE, case.step, "its command for removal is run, if it has one")
    return case.look("the command runs again")


def _small(case: Case) -> Impact | None:
    """What is put back on the machine without anybody noticing."""
    return None if case.updates else Impact(Weight.NONE, case.step, verb(case.step))


_WHEN_MADE: Mapping[str, Rule] = {f"{KEPT}NodeMaintenance": machines.maintenance}
"""What takes something down by being made."""
_RULES: Mapping[str, Rule] = {
    f"{KEPT}TenancyPolicy": _tenancy,
    f"{KEPT}FabricPartitions": machines.partitions,
    f"{KEPT}CdiSpec": machines.machine_lost,
    f"{KEPT}ServiceVm": machines.service_vm,
    f"{KEPT}HostBoot": machines.boot,
    f"{KEPT}VfioBinding": machines.vfio,
    f"{KEPT}Rke2Node": machines.rke2_node,
    f"{KEPT}UsernetesNode": machines.usernetes_node,
    f"{KEPT}RootlessHost": machines.rootless_host,
    f"{KEPT}Rke2Tokens": _data("and no machine can join with the old tokens"),
    f"{KEPT}NodeMaintenance": machines.maintenance,
    f"{KEPT}MigLayout": machines.mig_layout,
    INSTANCE: machines.instance,
    RENTED: machines.instance,
    "command:remote:Command": _command,
    "kubernetes:helm.sh/v3:Release": _release,
    "kubernetes:core/v1:Secret": _secret,
    "kubernetes:core/v1:Namespace": _data("with all objects in it"),
    "kubernetes:core/v1:PersistentVolumeClaim": _data("with the data of the volume"),
    "kubernetes:core/v1:PersistentVolume": _data("with its data, if it is not kept"),
    "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition": _data(
        "and with it every object of that kind in the cluster"
    ),
    "kubernetes:apps/v1:StatefulSet": _workload,
    "kubernetes:apps/v1:Deployment": _workload,
    "kubernetes:apps/v1:DaemonSet": _workload,
    "gcp:compute/network:Network": _data("with every connection over it"),
    "gcp:storage/bucket:Bucket": _data("with everything in it"),
}
