"""One tenant of a `caas` cluster: what it may hold and reach, and the proof that it is kept in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import Secret

from gpuclusters.tenancy.isolation import PULL_SECRET, TENANT_LABEL
from gpuclusters.tenancy.resource import TenancyPolicy


@dataclass(frozen=True, kw_only=True)
class TenantArgs:
    """What one tenant gets and what it is kept in."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    tenant: str
    namespace: str
    tenancy: Mapping[str, Any]
    """Spec of the Tenancy object, beside tenant and namespace."""
    registry_credentials: pulumi.Input[str] | None = None
    """What its pods pull with, as a `.dockerconfigjson`; a secret."""
    adopt: bool = False
    """Whether a Tenancy that is there already is taken over, if it says this."""
    requires: Sequence[pulumi.Resource]
    """What must be there first and go last: definitions, rules for all tenants, controllers."""


class Tenant(pulumi.ComponentResource):
    """A Tenancy, from which the controller in the cluster makes the namespace and all that is in it.

    A tenant is ready when every part of its isolation is enforced, not merely created.
    """

    ready: pulumi.Output[bool]
    namespace: pulumi.Output[str]

    def __init__(
        self, name: str, args: TenantArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:Tenant", name, None, opts)
        proof = TenancyPolicy(
            f"{name}-policy",
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            tenant=args.tenant,
            namespace=args.namespace,
            spec=args.tenancy,
            adopt=args.adopt,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.requires)),
        )
        if args.registry_credentials is not None:
            Secret(
                f"{name}-registry-credentials",
                metadata={
                    "name": PULL_SECRET,
                    "namespace": args.namespace,
                    "labels": {TENANT_LABEL: args.tenant},
                },
                type="kubernetes.io/dockerconfigjson",
                string_data={".dockerconfigjson": args.registry_credentials},
                # The controller makes the namespace.
                opts=pulumi.ResourceOptions(parent=self, depends_on=[proof]),
            )
        self.ready = proof.ready
        self.namespace = pulumi.Output.from_input(args.namespace)
        self.register_outputs({"ready": self.ready, "namespace": self.namespace})
