"""The last step of an rke2 cluster: its GPUs are shown to work.

Owns: one proof. Deliberately does not own: the Jobs, which come and go with each run, nor their namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpuclusters.core import scripts
from gpuclusters.proof.jobs import PROGRAMS
from gpuclusters.proof.resource import ProofRun


@dataclass(frozen=True, kw_only=True)
class ProofArgs:
    """What is to be shown, about which nodes."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    level: str
    """L0 to L4."""
    nodes: Sequence[Mapping[str, Any]]
    """As `ProofNode` of the domain: name, resources, product, mig, shared."""
    tests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By name, how each is run: `matmul`, `diagnostics`, `load`, `burn`, `collective`; images by digest."""
    namespace: str = "gpu-proof"
    operator_namespace: str = "gpu-operator"
    prometheus: Mapping[str, Any] | None = None
    """namespace, service and port; None without monitoring."""
    tolerations: Sequence[str] = ()
    driver: pulumi.Input[str] | None = None
    operator: pulumi.Input[str] | None = None
    timeout_seconds: int = 7200
    """For all tests on all nodes together."""
    simulated: bool = False
    requires: Sequence[pulumi.Resource] = ()
    """What makes the GPUs ready."""


class Proof(pulumi.ComponentResource):
    """There when every check passed."""

    ready: Sequence[pulumi.Resource]
    """What to depend on."""
    run: ProofRun
    """Its outputs say when, how many checks, and the digest of the evidence."""

    def __init__(
        self, name: str, args: ProofArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:rke2:Proof", name, None, opts)
        self.run = ProofRun(
            name,
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            level=args.level,
            nodes=[dict(node) for node in args.nodes],
            namespace=args.namespace,
            operator_namespace=args.operator_namespace,
            prometheus=args.prometheus,
            tolerations=list(args.tolerations),
            driver=args.driver,
            operator=args.operator,
            programs=scripts.digest(*(f"proof/{name}" for name in PROGRAMS.values())),
            timeout_seconds=args.timeout_seconds,
            simulated=args.simulated,
            **{test: dict(part) for test, part in args.tests.items()},
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.requires)),
        )
        self.ready = (self.run,)
        self.register_outputs({"proven": self.run.proven, "at": self.run.at})
