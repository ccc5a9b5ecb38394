"""The quota of a project, read before the first machine is made."""

from __future__ import annotations

from typing import Any

import pulumi

from gpuclusters.domain import gcp_quota
from gpuclusters.domain.gcp_quota import GcpQuotaInputs
from gpuclusters.providers.google_cloud import access, compute
from gpuclusters.providers.reconciling import Live, Properties, ReconcilingProvider
from gpuclusters.providers.resource import Resource


class GcpQuotaProvider(ReconcilingProvider[GcpQuotaInputs]):
    """Asks whenever the machines of a cluster change; owns nothing on Google Cloud."""

    model = GcpQuotaInputs
    identity = frozenset({"project", "region", "owner"})

    def ensure(self, inputs: GcpQuotaInputs, before: Properties) -> Properties:  # noqa: ARG002
        """All machines that are missing may be made."""
        api = compute(inputs.google)
        existing = {one.name for one in api.owned(inputs.project, inputs.owner)}
        quotas = api.quotas(inputs.project, inputs.region)
        return {"needed": gcp_quota.require(inputs, existing, quotas)}

    def observe(self, inputs: GcpQuotaInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """What was found stays true until the machines change."""
        return Live({"needed": before.get("needed") or {}}, {})

    def remove(self, inputs: GcpQuotaInputs, before: Properties) -> None:
        """There is nothing to remove."""


class GcpQuota(Resource, module="gpu", name="GcpQuota"):
    """That the project may have the machines of a cluster."""

    needed: pulumi.Output[dict[str, float]]
    """What the machines that were missing counted for, by metric."""

    def __init__(
        self,
        name: str,
        *,
        project: str,
        region: str,
        owner: str,
        machines: dict[str, dict[str, float]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        properties: dict[str, Any] = {
            "project": project,
            "region": region,
            "owner": owner,
            "machines": machines,
            "google": access(),
            "needed": None,
        }
        super().__init__(name, properties, opts)
