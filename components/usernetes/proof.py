"""The last step of a rootless cluster: its nodes, network and GPUs are shown to work together.

Owns: one proof of rungs 5 to 9. Deliberately does not own: the pods, which come and go with each run, nor
rungs 1 to 4, which the hosts' own resources pass before and `gpu-clusters verify` asks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpuclusters.core import scripts
from gpuclusters.proof import resource
from gpuclusters.proof.ladder import CLUSTER_RUNGS
from gpuclusters.proof.ladder_inputs import NAMESPACE
from gpuclusters.proof.ladder_run import PROGRAMS


@dataclass(frozen=True, kw_only=True)
class TrainingProofArgs:
    """What is to be shown, about which nodes."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    rung: int
    """The highest, 1 to 9; up to 4 nothing is left to show in the cluster."""
    nodes: Sequence[Mapping[str, Any]]
    """As `LadderNode` of the domain: name, gpus, takes_pods."""
    smoke: Mapping[str, Any] | None = None
    """As `Smoke`: image and timeout of the network's test; None: its default."""
    vector_add: Mapping[str, Any] | None = None
    """As `VectorAdd`, likewise."""
    training: Mapping[str, Any] | None = None
    """As `Training`; None below rung 9."""
    namespace: str = NAMESPACE
    tolerations: Sequence[str] = ()
    versions: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Of what the GPUs depend on, by name; another one proves again."""
    settle_seconds: int = 600
    timeout_seconds: int = 3600
    """For all rungs together."""
    simulated: bool = False
    requires: Sequence[pulumi.Resource] = ()
    """The gate of the device plugin."""


class TrainingProof(pulumi.ComponentResource):
    """There when every rung held."""

    ready: Sequence[pulumi.Resource]
    """What to depend on."""
    run: resource.TrainingProof | None
    """Its outputs say when, how many checks, and the digest of the evidence; None below rung 5."""

    def __init__(
        self, name: str, args: TrainingProofArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:usernetes:TrainingProof", name, None, opts)
        self.run = None
        if args.rung < CLUSTER_RUNGS[0]:
            self.ready = tuple(args.requires)
            self.register_outputs({})
            return
        self.run = resource.TrainingProof(
            name,
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            rung=args.rung,
            nodes=[dict(node) for node in args.nodes],
            namespace=args.namespace,
            smoke=args.smoke,
            vector_add=args.vector_add,
            training=args.training,
            tolerations=list(args.tolerations),
            versions=dict(args.versions),
            programs=scripts.digest(*(f"proof/{program}" for program in PROGRAMS)),
            settle_seconds=args.settle_seconds,
            timeout_seconds=args.timeout_seconds,
            simulated=args.simulated,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.requires)),
        )
        self.ready = (self.run,)
        self.register_outputs({"proven": self.run.proven, "at": self.run.at})
