"""One tenant's isolation: the Tenancy object and the proof that it is enforced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pulumi

from gpuclusters.providers.reconciling import Live, Properties, ReconcilingProvider
from gpuclusters.providers.resource import ModelResource
from gpuclusters.tenancy import cluster as reconcile_tenancy
from gpuclusters.tenancy.cluster import TenancyInputs

if TYPE_CHECKING:
    from gpuclusters.kube.objects import KubernetesObjects


class TenancyPolicyProvider(ReconcilingProvider[TenancyInputs]):
    """Ready only when everything is enforced; goes only when no GPU is leased any more."""

    model = TenancyInputs
    identity = frozenset({"cluster", "tenant", "namespace"})
    sensitive = frozenset({"kubeconfig"})

    def ensure(self, inputs: TenancyInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Apply the Tenancy and wait for the controller and the proofs."""
        from gpuclusters.core.converge import SystemClock

        return _outputs(
            reconcile_tenancy.ensure_tenancy(
                inputs.tenancy(),
                _cluster(inputs),
                SystemClock(),
                timeout_seconds=inputs.timeout_seconds,
            )
        )

    def differences(self, inputs: TenancyInputs) -> Sequence[str]:
        """Of a Tenancy that is there."""
        return reconcile_tenancy.differences(inputs.tenancy(), _cluster(inputs))

    def observe(self, inputs: TenancyInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The proofs as of now; what is not proven shows as not ready, so that `up` acts."""
        judgement = reconcile_tenancy.observe_tenancy(inputs.tenancy(), _cluster(inputs))
        return Live(_outputs(judgement), {}) if judgement else None

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found the isolation not enforced any more."""
        return outputs.get("ready") is False

    def remove(self, inputs: TenancyInputs, before: Properties) -> None:  # noqa: ARG002
        """Delete the Tenancy unless the tenant holds GPUs."""
        reconcile_tenancy.remove_tenancy(inputs.tenant, _cluster(inputs))


def _cluster(inputs: TenancyInputs) -> KubernetesObjects:
    # Imported late: the client takes half a second to load, and a program only declares.
    from gpuclusters.kube.objects import KubernetesObjects

    return KubernetesObjects(inputs.kubeconfig)


def _outputs(judgement: reconcile_tenancy.Judgement) -> Properties:
    return {
        "ready": judgement.ready,
        "proofs": judgement.proven,
        "observed_generation": judgement.generation,
    }


class TenancyPolicy(ModelResource, module="gpu", name="TenancyPolicy"):
    """A tenant whose isolation is proven."""

    provider = TenancyPolicyProvider
    ready: pulumi.Output[bool]
    """Whether namespace, quota, limits, network and admission policies are all enforced."""
    proofs: pulumi.Output[Sequence[str]]
    """Names of what is proven."""
    observed_generation: pulumi.Output[int]
    """Generation of the Tenancy object that the proofs are about."""
