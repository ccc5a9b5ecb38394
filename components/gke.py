"""A cluster of Google Kubernetes Engine with its network, account, quota and node pools.

Owns: network, subnet with the ranges of pods and services, router, NAT; the nodes' account and its roles;
cluster and pools. Does not own: what Google runs on the nodes, its GPU driver and device plugin included.
"""

from collections.abc import Mapping
from dataclasses import field

import pulumi
from pulumi_gcp import container

from components.component import Component, Told
from components.gcp import node_account, own_network
from components.kubernetes_objects import after, kept
from gpuclusters.gcp import kubeconfig
from gpuclusters.gcp.model import GkePlan
from gpuclusters.gcp.resource import GcpQuota


class GkeCluster(Component, module="gke"):
    """Cluster `<name>`, each pool `<name>-<pool>`."""

    plan: GkePlan
    impersonate: str = ""
    """Account that the API is reached as; empty: that of who asks."""

    kubeconfig: pulumi.Output[str] = field(init=False)
    """With no password and no token: it names the command that gets one. Known when all pools are there."""
    pools: Mapping[str, container.NodePool] = field(init=False)

    def declare(self) -> Told:
        name, plan, child = self._name, self.plan, self.child
        # Names are set, so the old one has to be gone before a new one can have its name.
        named = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        quota = GcpQuota(
            f"{name}-quota",
            project=plan.project,
            region=plan.region,
            owner=plan.owner,
            machines=plan.needs,
            # Google names the nodes, so nobody can tell later which of them are there already.
            opts=pulumi.ResourceOptions.merge(
                child, pulumi.ResourceOptions(ignore_changes=["machines"])
            ),
        )
        subnet, nat = own_network(name, after(quota, opts=named), plan, **plan.network)
        account, roles = node_account(name, plan, after(quota, opts=child))
        kept_cluster = kept(named, protect=plan.protect)
        cluster = self._cluster(account.email, after(subnet, nat, *roles, opts=kept_cluster))
        self.pools = {
            pool: container.NodePool(  # type: ignore[call-overload]  # its arguments are the plan's
                f"{name}-{pool}",
                name=pool,
                project=plan.project,
                location=plan.arguments["location"],
                cluster=cluster.name,
                management={"auto_repair": True, "auto_upgrade": True},
                # Quotas of GPUs have no room for more.
                upgrade_settings={"max_surge": 0, "max_unavailable": 1},
                node_config={**given["node_config"], "service_account": account.email},
                **{key: one for key, one in given.items() if key != "node_config"},
                opts=pulumi.ResourceOptions.merge(
                    named,
                    # With how many it begins; later that would make the pool anew.
                    pulumi.ResourceOptions(ignore_changes=["initial_node_count"]),
                ),
            )
            for pool, given in plan.pools.items()
        }
        ready = [one.id for one in self.pools.values()]
        self.kubeconfig = pulumi.Output.all(
            cluster.endpoint, cluster.master_auth.cluster_ca_certificate, *ready
        ).apply(lambda known: kubeconfig.render(plan.cluster, known[0], known[1], self.impersonate))
        return {"kubeconfig": self.kubeconfig}

    def _cluster(
        self, account: pulumi.Input[str], opts: pulumi.ResourceOptions
    ) -> container.Cluster:
        plan = self.plan
        project = f"projects/{plan.project}"
        return container.Cluster(
            self._name,
            name=plan.cluster,
            project=plan.project,
            network=f"{project}/global/networks/{plan.cluster}",
            subnetwork=f"{project}/regions/{plan.region}/subnetworks/{plan.cluster}",
            networking_mode="VPC_NATIVE",
            ip_allocation_policy={
                "cluster_secondary_range_name": "pods",
                "services_secondary_range_name": "services",
            },
            datapath_provider="ADVANCED_DATAPATH",
            # No certificate that is an administrator for ever; who may do what is IAM's to say.
            master_auth={"client_certificate_config": {"issue_client_certificate": False}},
            enable_legacy_abac=False,
            enable_shielded_nodes=True,
            # Every cluster is made with a pool that nobody described. It goes at once, and what Google then
            # tells of its machine is another pool's.
            remove_default_node_pool=True,
            initial_node_count=1,
            node_config={"service_account": account, "machine_type": "e2-small"},
            **plan.arguments,
            opts=pulumi.ResourceOptions.merge(
                opts, pulumi.ResourceOptions(ignore_changes=["node_config"])
            ),
        )
