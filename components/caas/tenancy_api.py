"""What the cluster has to know before the first tenant: the Tenancy API and the rules for every tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import (
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apiextensions.v1 import CustomResourceDefinition

from gpuclusters.domain import admission_policy, isolation

POD_POLICY = "gpu-clusters-tenant-pods"


@dataclass(frozen=True, kw_only=True)
class TenancyApiArgs:
    """What holds for all tenants of a cluster."""

    custom_resource_definitions: Sequence[Mapping[str, Any]]
    runtime_classes: Sequence[str]
    runtime_selector: Sequence[str]
    gpu_resource: str
    network: isolation.Network


class TenancyApi(pulumi.ComponentResource):
    """Owns the custom resource definitions, the pod policy and the denial of the infrastructure."""

    pod_policy: pulumi.Output[str]
    """Name of the ValidatingAdmissionPolicy, once it is bound to the tenants' namespaces."""

    definitions: Sequence[CustomResourceDefinition]
    """What has to be established before the first Tenancy."""

    def __init__(
        self, name: str, args: TenancyApiArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:TenancyApi", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.definitions = [
            CustomResourceDefinition(
                f"{name}-{definition['metadata']['name']}",
                metadata=definition["metadata"],
                spec=definition["spec"],
                opts=child,
            )
            for definition in args.custom_resource_definitions
        ]
        # Rendered in Kubernetes' own spelling, which the SDK takes as it is but has no type for.
        rules: Any = admission_policy.pod_policy(
            runtime_classes=args.runtime_classes,
            runtime_selector=args.runtime_selector,
            gpu_resource=args.gpu_resource,
        )
        bound_to: Any = admission_policy.pod_policy_binding(POD_POLICY)
        policy = ValidatingAdmissionPolicy(
            f"{name}-pods", metadata={"name": POD_POLICY}, spec=rules, opts=child
        )
        binding = ValidatingAdmissionPolicyBinding(
            f"{name}-pods-binding",
            metadata={"name": POD_POLICY},
            spec=bound_to,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )
        CustomResource(
            f"{name}-infrastructure",
            api_version="cilium.io/v2",
            kind="CiliumClusterwideNetworkPolicy",
            metadata={"name": "gpu-clusters-deny-infrastructure"},
            spec=isolation.infrastructure_denial(args.network),
            opts=child,
        )
        self.pod_policy = binding.metadata.name
        self.register_outputs({"pod_policy": self.pod_policy})
