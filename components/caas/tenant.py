"""One tenant of a `caas` cluster: a namespace, limits, network isolation, and the proof that they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import LimitRange, Namespace, ResourceQuota, ServiceAccountPatch

from gpuclusters.providers.tenancy_policy import TenancyPolicy

OBJECT_NAME = "tenant"
"""Name of the quota and of the limit range; a namespace has one of each."""


@dataclass(frozen=True, kw_only=True)
class TenantArgs:
    """What one tenant gets and what it is kept in."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    tenant: str
    namespace: str
    namespace_labels: Mapping[str, str]
    namespace_annotations: Mapping[str, str]
    quota: Mapping[str, str]
    """`hard` of the ResourceQuota."""
    limits: Sequence[Mapping[str, Any]]
    """`limits` of the LimitRange; without defaults a quota refuses pods that state nothing."""
    network_policies: Mapping[str, Mapping[str, Any]]
    """Spec by name of the CiliumNetworkPolicies."""
    tenancy: Mapping[str, Any]
    """Spec of the Tenancy object, beside names that are known here."""
    pod_policy: pulumi.Input[str]
    """Name of the admission policy that must be bound first."""
    definitions: Sequence[pulumi.Resource]
    """The custom resource definitions that must be established first."""


class Tenant(pulumi.ComponentResource):
    """A tenant is ready when every part of its isolation is enforced, not merely created."""

    ready: pulumi.Output[bool]
    namespace: pulumi.Output[str]

    def __init__(
        self, name: str, args: TenantArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:Tenant", name, None, opts)
        home = Namespace(
            f"{name}-namespace",
            metadata={
                "name": args.namespace,
                "labels": dict(args.namespace_labels),
                "annotations": dict(args.namespace_annotations),
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.namespace = home.metadata.name
        inside = pulumi.ResourceOptions(parent=home)

        quota = ResourceQuota(
            f"{name}-quota",
            metadata={"name": OBJECT_NAME, "namespace": self.namespace},
            spec={"hard": dict(args.quota)},
            opts=inside,
        )
        # In Kubernetes' own spelling, which the SDK takes as it is but has no type for.
        limit_spec: Any = {"limits": [dict(limit) for limit in args.limits]}
        limits = LimitRange(
            f"{name}-limits",
            metadata={"name": OBJECT_NAME, "namespace": self.namespace},
            spec=limit_spec,
            opts=inside,
        )
        # The account of pods that name none: it must not hand them the API server. Kubernetes has
        # made it with the namespace, so it is patched, not created.
        account = ServiceAccountPatch(
            f"{name}-default-account",
            metadata={"name": "default", "namespace": self.namespace},
            automount_service_account_token=False,
            opts=inside,
        )
        policies = {
            policy: CustomResource(
                f"{name}-{policy}",
                api_version="cilium.io/v2",
                kind="CiliumNetworkPolicy",
                metadata={"name": policy, "namespace": self.namespace},
                spec=dict(spec),
                opts=inside,
            )
            for policy, spec in args.network_policies.items()
        }
        proof = TenancyPolicy(
            f"{name}-policy",
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            tenant=args.tenant,
            namespace=self.namespace,
            spec=args.tenancy,
            policies=sorted(policies),
            admission_policy=args.pod_policy,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*args.definitions, quota, limits, account, *policies.values()],
            ),
        )
        self.ready = proof.ready
        self.register_outputs({"ready": self.ready, "namespace": self.namespace})
