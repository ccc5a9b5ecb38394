"""The lab that a configuration asks for: which machines, in which condition, with which nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.lab_entry import Choice
from gpuclusters.config import programs, usernetes_plan
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import ClusterConfig, uses_lab
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.rke2_cluster import Rke2Config, machine_names
from gpuclusters.config.rke2_plan import proof_tests
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.proof.checks import ProofTest

Request = dict[str, Any]
"""What one cluster wants: `lab.service.Request` reads it."""

ANEW = "`make down`, then `make up`"
"""How a lab gets nodes of another kind."""
_MACHINES = {("a100-sxm4-80gb", 8): "plain-gpu-a100", ("v100-sxm2-16gb", 4): "plain-gpu-v100"}
"""Simulated machines with GPUs that carry NVIDIA's driver themselves, by product and count."""


def requests(config: ClusterConfig, others: Sequence[ClusterConfig] = ()) -> list[Request]:
    """What the chosen cluster wants; then the others of the same stack file that live in the lab.

    Their machines are there too, so that a change of type finds both what goes and what comes.
    """
    found = [_of(config)]
    for other in filter(uses_lab, others):
        try:
            found.append(_of(other))
        except UsageError:
            continue  # said when that cluster is chosen
    return found


def machine_count(wanted: Sequence[Request]) -> int:
    """How many machines a lab has that does what all of them want."""
    return len({machine["name"] for one in wanted for machine in one["machines"]})


def _of(config: ClusterConfig) -> Request:
    if isinstance(config, CaasConfig):
        return _caas(config)
    return _rke2(config) if isinstance(config, Rke2Config) else _usernetes(config)


def _caas(config: CaasConfig) -> Request:
    names = {node.name for node in config.nodes}
    joins = isinstance(config.kubernetes, Rke2Kubernetes)
    servers = config.kubernetes.servers if isinstance(config.kubernetes, Rke2Kubernetes) else ()
    # Labels are the stack's to give, and the installer's of Kata.
    like = {"platform": config.platform.value, "bare": joins, "joins": joins}
    plain: dict[str, str | bool] = {"platform": "plain-server", "plain": True}
    machines: list[dict[str, str | bool]] = [{"name": node.name, **like} for node in config.nodes]
    machines += [{"name": one.name, **plain} for one in servers if one.name not in names]
    return {"name": config.name, "machines": machines, "image": programs.image(config)}


def _rke2(config: Rke2Config) -> Request:
    platforms = {
        node: _platform(f"the pool {pool.name}", pool.gpu.product, pool.gpu.count)
        for pool in config.pools
        if pool.gpu is not None
        for node in pool.nodes
    }
    like = {"plain": True, "gpu_operator": True}
    machines = [
        {"name": name, "platform": platforms.get(name, "plain-server"), **like}
        for name in machine_names(config)
    ]
    image = proof_tests(config).get(ProofTest.MATMUL, {}).get("image")
    return {"name": config.name, "machines": machines, "proofs": [image] if image else []}


def _usernetes(config: UsernetesConfig) -> Request:
    platform = _platform("usernetes.gpus", config.gpus.product, config.gpus.count)
    like = {"platform": platform, "plain": True, "rootless": True}
    names = usernetes_plan.machine_names(config)
    return {"name": config.name, "machines": [{"name": name, **like} for name in names]}


def _platform(who: str, product: str, count: int) -> str:
    known = " or ".join(f"{count} of {product}" for product, count in _MACHINES)
    try:
        return _MACHINES[product, count]
    except KeyError:
        raise UsageError(
            f"the lab has no machine with {count} of {product}, which {who} wants; "
            f"it has machines with {known}"
        ) from None


def described(cluster: ClusterConfig, choice: Choice, *, briefly: bool = False) -> str:
    """The kind of nodes of a cluster, and why it is so unless it is to be said briefly."""
    kind, why = choice.kind, choice.why
    if isinstance(cluster, UsernetesConfig):
        kind, why = "simulated", "those of usernetes are inside of containers of their hosts"
    return f"nodes are {kind}" if briefly else f"nodes are {kind}: {why}"


def afterwards(cluster: ClusterConfig, choice: Choice) -> str:
    """How to get real nodes where something that passes kept them away; empty where nothing did."""
    if isinstance(cluster, UsernetesConfig) or not choice.passing:
        return ""
    return f"nodes stay simulated until the lab is made anew ({ANEW}): {choice.passing}"
