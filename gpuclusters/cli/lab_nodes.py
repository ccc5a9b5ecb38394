"""What the nodes of the lab are, and what stands for Kata on them: the same words in every command."""

from __future__ import annotations

from gpuclusters.cli.project import Project
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.stack import StackConfig
from gpuclusters.config.usernetes import UsernetesConfig
from lab import kata_runtime, node_kind, nodes, spec

ANEW = "`make down`, then `make up`"
"""How a lab gets nodes of another kind."""


def decide(project: Project, config: StackConfig) -> nodes.Choice:
    """What the nodes of the lab are, or would be, with the configuration as it is; changes nothing."""
    wanted = nodes.Wanted(config.lab.nodes)
    return node_kind.decide(project.lab_folder, wanted, nodes.machine_facts())


def described(cluster: ClusterConfig, choice: nodes.Choice, *, briefly: bool = False) -> str:
    """The kind of nodes of a cluster, and why it is so unless it is to be said briefly."""
    kind, why = choice.kind, choice.why
    if isinstance(cluster, UsernetesConfig):
        kind, why = (
            nodes.Kind.SIMULATED,
            "those of usernetes are inside of containers of their hosts",
        )
    return f"nodes are {kind.value}" if briefly else f"nodes are {kind.value}: {why}"


def afterwards(cluster: ClusterConfig, choice: nodes.Choice) -> str:
    """How to get real nodes where something that passes kept them away; empty where nothing did."""
    if isinstance(cluster, UsernetesConfig) or not choice.passing:
        return ""
    return f"nodes stay simulated until the lab is made anew ({ANEW}): {choice.passing}"


def kata(cluster: ClusterConfig, kind: nodes.Kind) -> str:
    """What Kata's runtime class starts on nodes of this kind; empty for a cluster that has none."""
    return kata_runtime.sentence(kind) if isinstance(cluster, CaasConfig) else ""


def kata_of(project: Project, cluster: ClusterConfig) -> str:
    """The same of the lab that is there; empty where there is none."""
    there = spec.known(project.lab_folder)
    return kata(cluster, there.kind) if there is not None else ""
