"""The lab that a configuration asks for: which machines, in which condition, with which nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuclusters.cli.errors import UsageError
from gpuclusters.config import programs, usernetes_plan
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.lab import uses_lab
from gpuclusters.config.rke2_cluster import Rke2Config, machine_names
from gpuclusters.config.rke2_cluster_plan import proof_tests
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.proof.checks import ProofTest
from lab.control_plane import PLAIN_CAPACITY, NodeSpec
from lab.hosts import HostSpec
from lab.nodes import Kind
from lab.spec import LabSpec

_MACHINES = {("a100-sxm4-80gb", 8): "plain-gpu-a100", ("v100-sxm2-16gb", 4): "plain-gpu-v100"}
"""Simulated machines with GPUs that carry NVIDIA's driver themselves, by product and count."""


def spec_of(
    config: ClusterConfig, others: Sequence[ClusterConfig] = (), kind: Kind = Kind.SIMULATED
) -> LabSpec:
    """One machine and one node of the same name for each node.

    Args:
        config: the chosen cluster.
        others: clusters of other types in the same stack file. Their machines are there too, so that a
            change of type finds both what goes and what comes; of machines of one name the chosen
            cluster's counts.
        kind: what nodes are that can be either; those of `usernetes` are always played.

    Raises:
        UsageError: it wants a machine that cannot be simulated.
    """
    spec = _of(config, kind)
    for other in others:
        if not uses_lab(other):
            continue
        try:
            spec = spec.beside(_of(other, kind))
        except UsageError:
            continue  # said when that cluster is chosen
    return spec


def _of(config: ClusterConfig, kind: Kind) -> LabSpec:
    if isinstance(config, CaasConfig):
        spec = _caas(config)
    else:
        spec = _rke2(config) if isinstance(config, Rke2Config) else _usernetes(config)
    # A node of usernetes is inside of a container, whose image comes from a registry.
    can_be_real = kind is Kind.REAL and not isinstance(config, UsernetesConfig)
    real = frozenset(node.name for node in spec.nodes) if can_be_real else frozenset()
    return replace(spec, kind=kind, real=real)


def _caas(config: CaasConfig) -> LabSpec:
    joins = isinstance(config.kubernetes, Rke2Kubernetes)
    servers = _servers(config)
    nodes = [node.name for node in config.nodes]
    return LabSpec(
        name=config.name,
        hosts=(
            *(
                HostSpec(name, config.platform.value, condition="bare" if joins else "node")
                for name in nodes
            ),
            *(HostSpec(name, "plain-server", condition="bare") for name in servers),
        ),
        # Labels are the stack's to give, and the installer's of Kata.
        nodes=(*map(NodeSpec, nodes), *map(_plain, servers)),
        image=programs.image(config),
        joins=frozenset([*nodes, *servers]) if joins else frozenset(),
    )


def _rke2(config: Rke2Config) -> LabSpec:
    platforms = {
        node: _platform(f"the pool {pool.name}", pool.gpu.product, pool.gpu.count)
        for pool in config.pools
        if pool.gpu is not None
        for node in pool.nodes
    }
    names = machine_names(config)
    return LabSpec(
        name=config.name,
        hosts=tuple(
            HostSpec(name, platforms.get(name, "plain-server"), condition="bare") for name in names
        ),
        nodes=tuple(map(_plain, names)),
        image="",
        joins=frozenset(names),
        gpu_operator=frozenset(names),
        proofs=frozenset(
            test["image"]
            for name, test in proof_tests(config).items()
            if name == ProofTest.MATMUL and test.get("image")
        ),
    )


def _usernetes(config: UsernetesConfig) -> LabSpec:
    platform = _platform("usernetes.gpus", config.gpus.product, config.gpus.count)
    names = usernetes_plan.machine_names(config)
    return LabSpec(
        name=config.name,
        hosts=tuple(HostSpec(name, platform, condition="bare") for name in names),
        nodes=tuple(map(_plain, names)),
        image="",
        joins=frozenset(names),
        usernetes=frozenset(names),
    )


def _platform(who: str, product: str, count: int) -> str:
    known = " or ".join(f"{count} of {product}" for product, count in _MACHINES)
    try:
        return _MACHINES[product, count]
    except KeyError:
        raise UsageError(
            f"the lab has no machine with {count} of {product}, which {who} wants; "
            f"it has machines with {known}"
        ) from None


def _plain(name: str) -> NodeSpec:
    return NodeSpec(name, capacity=PLAIN_CAPACITY, allocatable=PLAIN_CAPACITY)


def _servers(config: CaasConfig) -> list[str]:
    """Machines that carry a control plane and no GPUs."""
    if not isinstance(config.kubernetes, Rke2Kubernetes):
        return []
    nodes = {node.name for node in config.nodes}
    return [server.name for server in config.kubernetes.servers if server.name not in nodes]
