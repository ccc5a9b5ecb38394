"""What a plan takes down: which tenants, GPUs, partitions, machines and data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuclusters.review import impact_cluster as cluster
from gpuclusters.review import impact_machines as machines
from gpuclusters.review import impact_usernetes as usernetes
from gpuclusters.review.fleet import INSTANCE, RENTED, fleet
from gpuclusters.review.impact_case import Case, Facts, Impact, Rule, Weight, verb
from gpuclusters.review.plan import KEPT, Action, Plan, Step
from gpuclusters.review.text import listed, plural

__all__ = ["Impact", "Weight", "impacts"]


def impacts(plan: Plan) -> tuple[Impact, ...]:
    """What the steps of a plan take down, the worst first."""
    before = fleet(plan, after=False)
    facts = Facts(
        plan,
        tuple(sorted({tenant for known in before.values() for tenant in known.tenants})),
        {m.name: m.gpus for known in before.values() for m in known.machines.values()},
    )
    leaving = {
        step.name for step in plan.steps if step.type == _MACHINE and step.action is Action.DELETE
    }
    found = [
        impact
        for step in plan.changed
        for impact in _of(facts, step)
        # That a machine leaves says it all.
        if step.action is not Action.DELETE or impact.machine not in leaving
    ]
    found += [
        _leaves(facts, step)
        for step in plan.steps
        if step.name in leaving and step.type == _MACHINE
    ]
    return tuple(sorted(found, key=lambda i: (-i.weight, i.step.urn, i.says)))


def _leaves(facts: Facts, step: Step) -> Impact:
    gpus = facts.gpus_by_machine.get(step.name, 0)
    whose = f" of {listed(list(facts.tenants))}" if facts.tenants else ""
    return Impact(
        Weight.DANGER,
        step,
        f"{step.name} leaves with its {plural(gpus, 'GPU')}, which must be free of containers{whose}: "
        "partitions, service VM, CDI spec and VFIO binding go, and it boots as before next time",
        step.name,
        gpus,
    )


def _of(facts: Facts, step: Step) -> Iterable[Impact]:
    if step.unprotected:
        yield Impact(
            Weight.DANGER,
            step,
            "is no longer protected: from then on it can be deleted like anything else",
        )
    if step.is_component or step.action in (Action.ADOPT, Action.SAME, Action.READ):
        return
    if step.action is Action.CREATE and step.new is not None:
        rule = _WHEN_MADE.get(step.type)
        impact = rule(Case(facts, step, step.new, step.new)) if rule else None
        if impact is not None:
            yield impact
        return
    if step.old is None:
        return
    rule = _RULES.get(step.type) or _by_prefix(step.type)
    impact = rule(Case(facts, step, step.old, step.new)) if rule else None
    if impact is None and step.action in (Action.DELETE, Action.REPLACE):
        impact = Impact(Weight.LOOK, step, verb(step))
    if impact is not None:
        yield impact


def _by_prefix(type_: str) -> Rule | None:
    if type_.startswith(KEPT):
        kind = type_.removeprefix(KEPT)
        if "Driver" in kind:
            return machines.driver
        if kind in ("HostFile", "Preflight", "FleetPreflight"):
            return cluster.small
    if type_.startswith("gcp:compute/") and type_.endswith("Disk"):
        return cluster.data("with all data on it")
    return None


_MACHINE = "gpu-clusters:caas:GpuHost"
_WHEN_MADE: Mapping[str, Rule] = {f"{KEPT}NodeMaintenance": machines.maintenance}
"""What takes something down by being made."""
_RULES: Mapping[str, Rule] = {
    f"{KEPT}TenancyPolicy": cluster.tenancy,
    f"{KEPT}FabricPartitions": machines.partitions,
    f"{KEPT}CdiSpec": machines.machine_lost,
    f"{KEPT}ServiceVm": machines.service_vm,
    f"{KEPT}HostBoot": machines.boot,
    f"{KEPT}VfioBinding": machines.vfio,
    f"{KEPT}Rke2Node": machines.rke2_node,
    f"{KEPT}UsernetesNode": usernetes.node,
    f"{KEPT}RootlessHost": usernetes.host,
    f"{KEPT}Rke2Tokens": cluster.data("and no machine can join with the old tokens"),
    f"{KEPT}NodeMaintenance": machines.maintenance,
    f"{KEPT}MigLayout": machines.mig_layout,
    INSTANCE: machines.instance,
    RENTED: machines.instance,
    "command:remote:Command": cluster.command,
    "kubernetes:helm.sh/v3:Release": cluster.release,
    "kubernetes:core/v1:Secret": cluster.secret,
    "kubernetes:core/v1:Namespace": cluster.data("with all objects in it"),
    "kubernetes:core/v1:PersistentVolumeClaim": cluster.data("with the data of the volume"),
    "kubernetes:core/v1:PersistentVolume": cluster.data("with its data, if it is not kept"),
    "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition": cluster.data(
        "and with it every object of that kind in the cluster"
    ),
    "kubernetes:apps/v1:StatefulSet": cluster.workload,
    "kubernetes:apps/v1:Deployment": cluster.workload,
    "kubernetes:apps/v1:DaemonSet": cluster.workload,
    "gcp:compute/network:Network": cluster.data("with every connection over it"),
    "gcp:storage/bucket:Bucket": cluster.data("with everything in it"),
}
