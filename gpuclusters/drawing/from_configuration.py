"""Pictures of clusters as a stack's configuration declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuclusters.config import usernetes_plan
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.plan import NodePlan, plan
from gpuclusters.config.rke2_cluster import MadeCluster, Rke2Config
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.drawing.picture import Machine, Partition, Picture, Tenant, loose

_CONTROL_PLANES = {
    "existing": "a cluster that is there already",
    "lab": "the lab's, on this computer",
    "rke2": "RKE2, made by this stack",
}


def declared(config: ClusterConfig, says: str) -> Picture:
    if isinstance(config, CaasConfig):
        made = _caas(config)
    elif isinstance(config, GkeConfig):
        made = _gke(config)
    else:
        made = _rke2(config) if isinstance(config, Rke2Config) else _usernetes(config)
    return replace(made, name=config.name, says=says)


def _caas(config: CaasConfig) -> Picture:
    cluster = plan(config)
    programs = [f"API × {config.programs.replicas}", f"controllers × {config.programs.replicas}"]
    return Picture(
        type="caas",
        machines=tuple(_node(node, cluster.preset.gpu_model) for node in cluster.nodes),
        tenants=tuple(Tenant(tenant.name, tenant.share.gpus) for tenant in cluster.tenants),
        control_plane=_CONTROL_PLANES.get(config.kubernetes.source, config.kubernetes.source),
        programs=(*programs, "device plugins"),
    )


def _node(node: NodePlan, model: str) -> Machine:
    if node.declared:
        ordered = sorted(node.partitions, key=lambda cut: (cut.modules, cut.id))
        parts = tuple(Partition(f"partition {cut.id}", cut.modules) for cut in ordered)
    else:
        parts = loose(sorted({module for cut in node.partitions for module in cut.modules}))
    note = "partitions by lease" if not node.declared else ""
    if node.maintenance is not None:
        note = f"out of service ({node.maintenance.value})"
    kind = model.removeprefix("NVIDIA ")
    return Machine(node.name, kind, parts, note=note, switched=True)


def _rke2(config: Rke2Config) -> Picture:
    machines: dict[str, Machine] = {
        name: Machine(name, role="control plane") for name in config.own_servers
    }
    for pool in config.pools:
        for name in pool.nodes:
            machines[name] = Machine(
                name,
                kind=pool.gpu.product if pool.gpu else "",
                partitions=_board(pool.gpu.count if pool.gpu else 0),
                role="control plane" if name in config.own_servers else "",
                note=f"MIG {pool.mig}" if pool.mig else "",
            )
    if isinstance(config, MadeCluster):
        control_plane = f"RKE2 {config.version}"
    else:
        kubernetes = config.kubernetes
        control_plane = f"{_CONTROL_PLANES[kubernetes.source]} ({kubernetes.distribution})"
    return Picture(
        type="rke2",
        machines=tuple(machines.values()),
        control_plane=control_plane,
        programs=("GPU Operator",),
    )


def _board(count: int) -> tuple[Partition, ...]:
    return loose(range(1, count + 1))


def _usernetes(config: UsernetesConfig) -> Picture:
    versions = usernetes_plan.versions(config)
    return Picture(
        type="usernetes",
        machines=tuple(
            Machine(
                node.host,
                kind=config.gpus.product,
                partitions=_board(config.gpus.count),
                role="control plane" if node is config.control_plane else "",
                note=f"rootless, account {config.account}",
            )
            for node in usernetes_plan.nodes(config)
        ),
        control_plane=f"Kubernetes {versions.kubernetes}, Usernetes {versions.usernetes}",
        programs=("device plugin",),
    )


def _gke(config: GkeConfig) -> Picture:
    return Picture(
        type="gke",
        machines=tuple(
            Machine(
                f"{pool.name}-{number}",
                kind=pool.gpu.product if pool.gpu else pool.machine_type,
                partitions=_board(pool.gpu.count if pool.gpu else 0),
                note=f"up to {pool.most_nodes} nodes" if pool.most_nodes else "",
            )
            for pool in config.pools
            for number in range(1, pool.nodes + 1)
        ),
        control_plane=f"Google's, in {config.location}, channel {config.release_channel}",
        programs=("Google's device plugin",),
    )


def with_state(
    picture: Picture, outputs: Mapping[str, object], held: Mapping[tuple[str, int], str]
) -> Picture:
    """The picture with what the state knows: the partitions that are active, and who holds which GPU."""
    hosts = outputs.get("hosts") or outputs.get("nodes")
    known = hosts if isinstance(hosts, Mapping) else {}
    machines = tuple(_live(machine, known, held) for machine in picture.machines)
    return replace(picture, machines=machines)


def _live(
    machine: Machine, hosts: Mapping[str, object], held: Mapping[tuple[str, int], str]
) -> Machine:
    facts = hosts.get(machine.name)
    if not isinstance(facts, Mapping):
        return replace(machine, partitions=(), note="not made yet", switched=False)
    active = facts.get("active_partitions")
    numbers = {int(number) for number in active} if isinstance(active, list) else set()
    labels = {f"partition {number}" for number in numbers}
    missing = [p.label for p in machine.partitions if p.label and p.label not in labels]
    note = f"not active: {', '.join(missing)}" if missing else machine.note
    parts = (Partition(p.label if p.label in labels else "", p.modules) for p in machine.partitions)
    holders = {module: tenant for (name, module), tenant in held.items() if name == machine.name}
    return replace(machine, partitions=tuple(parts), note=note, holders=holders)
