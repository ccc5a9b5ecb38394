"""Whom the cluster's own programs talk to, and nobody else: a network policy for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from components.caas.programs import (
    API_METRICS_PORT,
    API_PORT,
    CONTROLLERS_PORT,
    DEVICE_PLUGIN_PORT,
)
from components.caas.system import System
from gpuclusters.tenancy.programs import POLICY, Ports, Program, Reach, network_policies

PORTS = {
    Program.CONTROLLERS: Ports(metrics=CONTROLLERS_PORT),
    Program.API: Ports(serves=API_PORT, metrics=API_METRICS_PORT),
    Program.DEVICE_PLUGIN: Ports(metrics=DEVICE_PLUGIN_PORT),
}


@dataclass(frozen=True, kw_only=True)
class ProgramNetworkArgs:
    """Where the programs are, and whom they connect to."""

    system: System
    reach: pulumi.Input[Reach]
    monitored: bool
    """Whether the Prometheus Operator collects their metrics."""
    callers: Sequence[str] = ()
    """Networks outside of the cluster from which the API is called."""


class ProgramNetwork(pulumi.ComponentResource):
    """Owns a CiliumNetworkPolicy in the namespace of each program."""

    def __init__(
        self, name: str, args: ProgramNetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:ProgramNetwork", name, None, opts)
        reach = pulumi.Output.from_input(args.reach)
        made = reach.apply(
            lambda known: network_policies(
                known, PORTS, monitored=args.monitored, callers=list(args.callers)
            )
        )
        for program, home in args.system.homes.items():
            CustomResource(
                f"{name}-{program}",
                api_version="cilium.io/v2",
                kind="CiliumNetworkPolicy",
                metadata={"name": POLICY, "namespace": home.namespace},
                spec=made.apply(itemgetter(program)),
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})
