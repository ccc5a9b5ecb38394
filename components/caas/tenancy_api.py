"""What the cluster has to know before the first tenant: the Tenancy API and the rules for every tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import ValidatingAdmissionPolicyBinding
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apiextensions.v1 import CustomResourceDefinition

from components.caas.admission import bound
from gpuclusters.tenancy import admission as admission_policy
from gpuclusters.tenancy import isolation


@dataclass(frozen=True, kw_only=True)
class TenancyApiArgs:
    """What holds for all tenants of a cluster."""

    custom_resource_definitions: Sequence[Mapping[str, Any]]
    runtime_classes: Sequence[str]
    runtime_selector: Sequence[str]
    gpu_resource: str
    network: isolation.Network
    huge_pages: bool
    """Whether VMs are of huge pages."""
    controllers: str
    """User name of the account that grants leases: it alone lets pods go that ask for GPUs."""


class TenancyApi(pulumi.ComponentResource):
    """Owns the definitions, the rules for pods and services, and the closed network of all tenants."""

    definitions: Sequence[CustomResourceDefinition]
    """What has to be established before the first object of ours."""

    rules: Sequence[pulumi.Resource]
    """What has to hold before the first tenant."""

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
        pods = admission_policy.pod_policy(
            runtime_classes=args.runtime_classes,
            runtime_selector=args.runtime_selector,
            gpu_resource=args.gpu_resource,
            huge_pages=args.huge_pages,
            controllers=args.controllers,
        )
        self.rules = [
            self._bound(f"{name}-pods", admission_policy.POD_POLICY, pods),
            self._bound(
                f"{name}-services",
                admission_policy.SERVICE_POLICY,
                admission_policy.service_policy(),
            ),
            CustomResource(
                f"{name}-network",
                api_version="cilium.io/v2",
                kind="CiliumClusterwideNetworkPolicy",
                metadata={"name": isolation.BASELINE},
                spec=isolation.baseline(args.network),
                opts=child,
            ),
        ]
        self.register_outputs({})

    def _bound(self, name: str, policy: str, spec: Any) -> ValidatingAdmissionPolicyBinding:
        return bound(name, policy, spec, admission_policy.policy_binding(policy), self)
