"""The Tenancy API with the rules for every tenant, which outlive them, and each tenant."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import (
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apiextensions.v1 import CustomResourceDefinition
from pulumi_kubernetes.core.v1 import Secret

from components.component import Component, Told
from components.kubernetes_objects import after
from gpuclusters.tenancy import admission as admission_policy
from gpuclusters.tenancy import isolation
from gpuclusters.tenancy.isolation import PULL_SECRET, TENANT_LABEL
from gpuclusters.tenancy.model import TenancySpec
from gpuclusters.tenancy.resource import TenancyPolicy


# Rendered in Kubernetes' own spelling, which the SDK takes as it is but has no type for.
def bound(
    name: str, policy: str, spec: Any, binding: Any, parent: pulumi.Resource
) -> ValidatingAdmissionPolicyBinding:
    """A policy and its binding, which is what must be there for the policy to hold."""
    declared = ValidatingAdmissionPolicy(
        name, metadata={"name": policy}, spec=spec, opts=pulumi.ResourceOptions(parent=parent)
    )
    return ValidatingAdmissionPolicyBinding(
        f"{name}-binding",
        metadata={"name": policy},
        spec=binding,
        opts=after(declared, opts=pulumi.ResourceOptions(parent=parent)),
    )


class TenancyApi(Component, module="caas"):
    """Owns the definitions, the rules for pods and services, and the closed network of all tenants."""

    custom_resource_definitions: Sequence[Mapping[str, Any]]
    runtime_classes: Sequence[str]
    runtime_selector: Sequence[str]
    gpu_resource: str
    network: isolation.Network
    huge_pages: bool
    """Whether VMs are of huge pages."""
    controllers: str
    """User name of the account that grants leases: it alone lets pods go that ask for GPUs."""

    def declare(self) -> None:
        name, child = self._name, self.child
        for definition in self.custom_resource_definitions:
            CustomResourceDefinition(
                f"{name}-{definition['metadata']['name']}",
                metadata=definition["metadata"],
                spec=definition["spec"],
                opts=child,
            )
        pods = admission_policy.pod_policy(
            runtime_classes=self.runtime_classes,
            runtime_selector=self.runtime_selector,
            gpu_resource=self.gpu_resource,
            huge_pages=self.huge_pages,
            controllers=self.controllers,
        )
        services = admission_policy.service_policy()
        for rule, policy, spec in (
            ("pods", admission_policy.POD_POLICY, pods),
            ("services", admission_policy.SERVICE_POLICY, services),
        ):
            bound(f"{name}-{rule}", policy, spec, admission_policy.policy_binding(policy), self)
        CustomResource(
            f"{name}-network",
            api_version="cilium.io/v2",
            kind="CiliumClusterwideNetworkPolicy",
            metadata={"name": isolation.BASELINE},
            spec=isolation.baseline(self.network),
            opts=child,
        )


class Tenant(Component, module="caas"):
    """A Tenancy; ready when every part of the tenant's isolation is enforced, not merely created."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    tenancy: TenancySpec
    registry_credentials: pulumi.Input[str] | None = None
    """What its pods pull with, as a `.dockerconfigjson`; a secret."""
    adopt: bool = False
    """Whether a Tenancy that is there already is taken over, if it says this."""

    ready: pulumi.Output[bool] = field(init=False)

    def declare(self) -> Told:
        name, child = self._name, self.child
        spec = self.tenancy.document()
        tenant, namespace = spec.pop("tenant"), spec.pop("namespace")
        proof = TenancyPolicy(
            f"{name}-policy",
            cluster=self.cluster,
            kubeconfig=self.kubeconfig,
            tenant=tenant,
            namespace=namespace,
            spec=spec,
            adopt=self.adopt or None,
            opts=child,
        )
        if self.registry_credentials is not None:
            Secret(
                f"{name}-registry-credentials",
                metadata={
                    "name": PULL_SECRET,
                    "namespace": namespace,
                    "labels": {TENANT_LABEL: tenant},
                },
                type="kubernetes.io/dockerconfigjson",
                string_data={".dockerconfigjson": self.registry_credentials},
                # The controller makes the namespace.
                opts=after(proof, opts=child),
            )
        self.ready = proof.ready
        return {"ready": self.ready, "namespace": namespace}
