"""The machines of one cluster on Google Cloud, with network, firewall, account and quota.

Owns: the network where it is ours (subnet, router, NAT), the firewall rules, the account with its roles, the
machines with boot disk and host key. Does not own: other rules of the network, what is installed later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from ipaddress import IPv4Network
from typing import Any

import pulumi
from pulumi_gcp import compute, projects, serviceaccount

from components.component import Component, Told
from components.host_connection import HostConnection
from components.kubernetes_objects import after, kept
from gpuclusters.gcp import cloud_init
from gpuclusters.gcp.model import GkePlan, PoolPlan
from gpuclusters.gcp.resource import FirstLogin, GcpMachine, GcpQuota, SshHostKey

SSH_PORT = 22


def node_account(
    name: str, plan: PoolPlan | GkePlan, opts: pulumi.ResourceOptions
) -> tuple[serviceaccount.Account, list[pulumi.Resource]]:
    """The account `<name>-account` of a cluster's machines, and its roles in the project."""
    account = serviceaccount.Account(
        f"{name}-account",
        project=plan.project,
        account_id=plan.account_id,
        display_name=f"Machines of the cluster {plan.cluster}",
        opts=opts,
    )
    roles: list[pulumi.Resource] = [
        projects.IAMMember(
            f"{name}-{role.removeprefix('roles/').replace('.', '-')}",
            project=plan.project,
            role=role,
            member=account.member,
            opts=opts,
        )
        for role in plan.roles
    ]
    return account, roles


def own_network(
    name: str,
    opts: pulumi.ResourceOptions,
    plan: PoolPlan | GkePlan,
    *,
    cidr: str,
    mtu: int,
    secondary: Mapping[str, str] | None = None,
) -> list[pulumi.Resource]:
    """One subnet, with more ranges by name, and a way out that is no way in: subnet and NAT."""
    common: dict[str, Any] = {"project": plan.project, "name": plan.cluster, "opts": opts}
    network = compute.Network(
        f"{name}-network",
        auto_create_subnetworks=False,
        routing_mode="REGIONAL",
        mtu=mtu,
        **common,
    )
    common |= {"region": plan.region}
    more = [
        compute.SubnetworkSecondaryIpRangeArgs(range_name=key, ip_cidr_range=one)
        for key, one in (secondary or {}).items()
    ]
    subnet = compute.Subnetwork(
        f"{name}-subnet",
        network=network.id,
        ip_cidr_range=cidr,
        secondary_ip_ranges=more or None,
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


class GpuMachine(Component, module="gcp"):
    """Machine `<name>-machine`, its key `<name>-host-key`, and the first login `<name>-login`."""

    plan: PoolPlan
    """Which has it under its name."""
    account: pulumi.Input[str]
    """Address of the account that it acts as."""

    connection: HostConnection = field(init=False)
    """How it is reached; its key is the one that it was given."""

    def declare(self) -> Told:
        name, child, args = self._name, self.child, self.plan
        inputs = args.machines[name]
        key = SshHostKey(f"{name}-host-key", machine=inputs["name"], opts=child)
        user_data = pulumi.Output.all(private_key=key.private_key, public_key=key.public_key).apply(
            lambda pair: cloud_init.user_data(args.user, args.authorized_keys, **pair)
        )
        machine = GcpMachine(
            f"{name}-machine",
            **inputs,
            service_account=self.account,
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
        return {"zone": machine.zone, "address": machine.address}


class GcpPool(Component, module="gcp"):
    """Machines, made side by side once the quota `<name>-quota` is known to suffice."""

    plan: PoolPlan
    machines: Mapping[str, GpuMachine] = field(init=False)

    def declare(self) -> None:
        name, args, child = self._name, self.plan, self.child
        # The configuration refuses it too; who builds on components alone must not open it either.
        if open_wide := [one for one in args.ssh_sources if IPv4Network(one).prefixlen == 0]:
            raise pulumi.RunError(
                f"SSH from {open_wide[0]} is the whole internet; name ranges or IAP"
            )
        # Names are set, so the old one has to be gone before a new one can have its name.
        self._named = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        network = []
        if args.network is not None:
            network = own_network(name, self._named, args, **args.network)
        before = [*network, *self._firewall(network)]
        account, roles = node_account(name, args, child)
        before += roles
        quota = GcpQuota(
            f"{name}-quota",
            project=args.project,
            region=args.region,
            owner=args.owner,
            machines=args.needs,
            opts=child,
        )
        self.machines = {
            host: GpuMachine(
                host, after(*before, quota, opts=child), plan=args, account=account.email
            )
            for host in args.machines
        }

    def _firewall(self, network: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        """SSH from few, and each other on exactly the needed ports."""
        args = self.plan
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
