"""The machines of one cluster on Google Cloud, with network, firewall, account and quota.

Owns: the network where it is ours (subnet, router, NAT), the firewall rules, the account with its roles, the
machines with boot disk and host key. Does not own: other rules of the network, what is installed later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

import pulumi
from pulumi_gcp import compute, projects, serviceaccount

from components.host_connection import HostConnection
from components.kubernetes_objects import after, kept
from gpuclusters.gcp import cloud_init
from gpuclusters.gcp.model import PoolPlan
from gpuclusters.gcp.resource import FirstLogin, GcpMachine, GcpQuota, SshHostKey

SSH_PORT = 22


class GpuMachine(pulumi.ComponentResource):
    """Machine `<name>-machine`, its key `<name>-host-key`, and the first login `<name>-login`."""

    connection: HostConnection
    """How it is reached; its key is the one that it was given."""

    def __init__(
        self,
        name: str,
        args: PoolPlan,
        account: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """The machine of host `name`; it acts as the account of this address."""
        super().__init__("gpu-clusters:gcp:GpuMachine", name, None, opts)
        inputs = args.machines[name]
        child = pulumi.ResourceOptions(parent=self)
        key = SshHostKey(f"{name}-host-key", machine=inputs["name"], opts=child)
        user_data = pulumi.Output.all(private_key=key.private_key, public_key=key.public_key).apply(
            lambda pair: cloud_init.user_data(args.user, args.authorized_keys, **pair)
        )
        machine = GcpMachine(
            f"{name}-machine",
            **inputs,
            service_account=account,
            user_data=user_data,
            opts=kept(child, protect=name in args.protect),
        )
        tunnel: dict[str, pulumi.Input[Any]] = {
            "project": inputs["project"],
            "zone": machine.zone,
            "instance": inputs["name"],
        }
        self.connection = HostConnection(
            host=name,
            address=machine.address,
            port=SSH_PORT,
            user=args.user,
            host_key=key.public_key,
            iap=tunnel if args.through_iap else None,
            machine=machine.instance_id,
        )
        FirstLogin(
            f"{name}-login",
            connection=self.connection.as_input(),
            instance=machine.instance_id,
            opts=child,
        )
        self.register_outputs({"zone": machine.zone, "address": machine.address})


class GcpPool(pulumi.ComponentResource):
    """Machines, made side by side once the quota `<name>-quota` is known to suffice."""

    machines: Mapping[str, GpuMachine]

    def __init__(
        self, name: str, args: PoolPlan, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:gcp:GcpPool", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        # The configuration refuses it too; who builds on components alone must not open it either.
        if open_wide := [one for one in args.ssh_sources if IPv4Network(one).prefixlen == 0]:
            raise pulumi.RunError(
                f"SSH from {open_wide[0]} is the whole internet; name ranges or IAP"
            )
        # Names are set, so the old one has to be gone before a new one can have its name.
        self._named = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        network = self._network(args.network) if args.network is not None else []
        before = [*network, *self._firewall(network)]
        account = serviceaccount.Account(
            f"{name}-account",
            project=args.project,
            account_id=args.account_id,
            display_name=f"Machines of the cluster {args.cluster}",
            opts=self._child,
        )
        before += [
            projects.IAMMember(
                f"{name}-{role.removeprefix('roles/').replace('.', '-')}",
                project=args.project,
                role=role,
                member=account.member,
                opts=self._child,
            )
            for role in args.roles
        ]
        quota = GcpQuota(
            f"{name}-quota",
            project=args.project,
            region=args.region,
            owner=args.owner,
            machines=args.needs,
            opts=self._child,
        )
        self.machines = {
            host: GpuMachine(host, args, account.email, after(*before, quota, opts=self._child))
            for host in args.machines
        }
        self.register_outputs({})

    def _network(self, own: Mapping[str, Any]) -> list[pulumi.Resource]:
        """One subnet, and a way out that is no way in."""
        name, args = self._name, self._args
        common: dict[str, Any] = {"project": args.project, "name": args.cluster}
        common |= {"opts": self._named}
        network = compute.Network(
            f"{name}-network",
            auto_create_subnetworks=False,
            routing_mode="REGIONAL",
            mtu=own["mtu"],
            **common,
        )
        common |= {"region": args.region}
        subnet = compute.Subnetwork(
            f"{name}-subnet",
            network=network.id,
            ip_cidr_range=own["cidr"],
            private_ip_google_access=True,
            **common,
        )
        router = compute.Router(f"{name}-router", network=network.id, **common)
        nat = compute.RouterNat(
            f"{name}-nat",
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
            subnetworks=[{"name": subnet.id, "source_ip_ranges_to_nats": ["ALL_IP_RANGES"]}],
            # Pulls of images by many pods open more connections than the default of 64 ports lets through.
            enable_dynamic_port_allocation=True,
            enable_endpoint_independent_mapping=False,
            min_ports_per_vm=128,
            max_ports_per_vm=4096,
            log_config={"enable": True, "filter": "ERRORS_ONLY"},
            **common,
        )
        return [subnet, nat]

    def _firewall(self, network: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        """SSH from few, and each other on exactly the needed ports."""
        args = self._args
        common: dict[str, Any] = {
            "project": args.network_project,
            "network": args.network_path,
            "direction": "INGRESS",
            "target_tags": [args.cluster],
            "opts": after(*network, opts=self._named),
        }
        ssh = compute.Firewall(
            f"{self._name}-ssh",
            name=f"{args.cluster}-ssh",
            description="SSH for those who look after the machines",
            source_ranges=list(args.ssh_sources),
            allows=[{"protocol": "tcp", "ports": [str(SSH_PORT)]}],
            log_config={"metadata": "INCLUDE_ALL_METADATA"},
            **common,
        )
        nodes = compute.Firewall(
            f"{self._name}-nodes",
            name=f"{args.cluster}-nodes",
            description="What nodes of the cluster send to each other",
            source_tags=[args.cluster],
            allows=[
                compute.FirewallAllowArgs(protocol=one.protocol, ports=list(one.ports) or None)
                for one in args.between_nodes
            ],
            **common,
        )
        return [ssh, nodes]
