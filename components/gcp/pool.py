"""All machines of one cluster on Google Cloud, made side by side once the quota is known to suffice.

Owns: the machines. Deliberately does not own: network, firewall and account, which come as arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.gcp.machine import GpuMachine, GpuMachineArgs
from gpuclusters.providers.gcp_quota import GcpQuota


@dataclass(frozen=True, kw_only=True)
class PoolMachine:
    """One machine of a pool."""

    host: str
    """Its name in the configuration, and of its node."""
    inputs: dict[str, Any]
    """What it is made of, but for account and boot data."""
    needs: dict[str, float]
    """What it counts for in quotas, by metric."""


@dataclass(frozen=True, kw_only=True)
class GcpPoolArgs:
    """What the machines of a cluster have in common."""

    project: str
    region: str
    owner: str
    """The stack, as the machines' label says it."""
    machines: Sequence[PoolMachine]
    service_account: pulumi.Input[str]
    user: str
    authorized_keys: Sequence[str]
    through_iap: bool
    requires: Sequence[pulumi.Resource] = ()


class GcpPool(pulumi.ComponentResource):
    """Machines by host, each a `GpuMachine` named `<host>`; and the quota `<name>-quota`."""

    machines: Mapping[str, GpuMachine]
    """By host."""
    ready: Sequence[pulumi.Resource]
    """To depend on: all machines run."""

    def __init__(
        self, name: str, args: GcpPoolArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:gcp:GcpPool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        quota = GcpQuota(
            f"{name}-quota",
            project=args.project,
            region=args.region,
            owner=args.owner,
            machines={str(one.inputs["name"]): one.needs for one in args.machines},
            opts=child,
        )
        self.machines = {
            one.host: GpuMachine(
                one.host,
                GpuMachineArgs(
                    host=one.host,
                    inputs=one.inputs,
                    service_account=args.service_account,
                    user=args.user,
                    authorized_keys=args.authorized_keys,
                    through_iap=args.through_iap,
                    requires=(*args.requires, quota),
                ),
                child,
            )
            for one in args.machines
        }
        self.ready = [made for machine in self.machines.values() for made in machine.ready]
        self.register_outputs({"zones": {host: one.zone for host, one in self.machines.items()}})
