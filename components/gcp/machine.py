"""One machine with GPUs on Google Cloud, whose first SSH connection is verified already.

Owns: the machine, its boot disk, its host key. Deliberately does not own: what is installed on it later, its
network and its account. Where it is, decides `GcpMachine`: the first zone that has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.host_connection import HostConnection
from gpuclusters.core import scripts
from gpuclusters.domain import gcp_cloud_init
from gpuclusters.domain.gcp_cloud_init import Boot
from gpuclusters.providers.first_login import FirstLogin
from gpuclusters.providers.gcp_machine import GcpMachine
from gpuclusters.providers.ssh_host_key import SshHostKey


@dataclass(frozen=True, kw_only=True)
class GpuMachineArgs:
    """What a machine needs to know."""

    host: str
    """Its name in the configuration, and of its node."""
    inputs: dict[str, Any]
    """What it is made of, but for account and boot data."""
    service_account: pulumi.Input[str]
    """Address of the account that it acts as."""
    user: str
    authorized_keys: Sequence[str]
    through_iap: bool
    """Whether SSH goes through Identity-Aware Proxy, and not to its address."""
    requires: Sequence[pulumi.Resource] = ()
    """Network, firewall and quota: what must be there before it is made."""


class GpuMachine(pulumi.ComponentResource):
    """Machine `<name>-machine`, its key `<name>-host-key`, and that it lets us in: `<name>-login`."""

    connection: HostConnection
    """How it is reached; its key is the one that it was given."""
    zone: pulumi.Output[str]
    instance_id: pulumi.Output[str]
    """Another one is another machine, with other GPUs."""
    ready: Sequence[pulumi.Resource]
    """To depend on: it runs, lets us in, and cloud-init is done with it."""

    def __init__(
        self, name: str, args: GpuMachineArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:gcp:GpuMachine", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        key = SshHostKey(f"{name}-host-key", machine=args.inputs["name"], opts=child)
        boot = Boot(
            user=args.user,
            authorized_keys=args.authorized_keys,
            files={file: scripts.read(f"gcp/{file}") for file in gcp_cloud_init.PLACES},
        )
        user_data = pulumi.Output.all(key.private_key, key.public_key).apply(
            lambda pair: gcp_cloud_init.user_data(boot, private_key=pair[0], public_key=pair[1])
        )
        machine = GcpMachine(
            f"{name}-machine",
            inputs={
                **args.inputs,
                "service_account": args.service_account,
                "user_data": pulumi.Output.secret(user_data),
            },
            opts=pulumi.ResourceOptions.merge(
                child, pulumi.ResourceOptions(depends_on=list(args.requires))
            ),
        )
        self.zone = machine.zone
        self.instance_id = machine.instance_id
        self.connection = self._connection(args, machine, key)
        login = FirstLogin(
            f"{name}-login",
            connection=self.connection.as_input(),
            instance=machine.instance_id,
            opts=child,
        )
        self.ready = (machine, login)
        self.register_outputs({"zone": self.zone, "address": machine.address})

    def _connection(
        self, args: GpuMachineArgs, machine: GcpMachine, key: SshHostKey
    ) -> HostConnection:
        tunnel: dict[str, pulumi.Input[Any]] = {
            "project": args.inputs["project"],
            "zone": machine.zone,
            "instance": args.inputs["name"],
        }
        return HostConnection(
            host=args.host,
            address=machine.address,
            port=22,
            user=args.user,
            host_key=key.public_key,
            iap=tunnel if args.through_iap else None,
            machine=machine.instance_id,
        )
