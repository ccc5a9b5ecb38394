"""One tenant's isolation: the Tenancy object and the proof that it is enforced."""

from collections.abc import Sequence

import pulumi

from gpuclusters.providers.reconciling import ClusterProvider, Live, Properties
from gpuclusters.providers.resource import ModelResource
from gpuclusters.tenancy import cluster
from gpuclusters.tenancy.cluster import OnDemandInputs, TenancyInputs


class TenancyPolicyProvider(ClusterProvider[TenancyInputs]):
    """Ready only when everything is enforced; goes only when no GPU is leased any more."""

    model = TenancyInputs
    identity = frozenset({"cluster", "tenant", "namespace"})

    def ensure(self, inputs: TenancyInputs, before: Properties) -> Properties:  # noqa: ARG002
        from gpuclusters.core.converge import Clock

        there, clock = self.cluster(inputs), Clock()
        timeout = inputs.timeout_seconds
        judged = cluster.ensure_tenancy(inputs.tenancy(), there, clock, timeout_seconds=timeout)
        return judged.outputs()

    def differences(self, inputs: TenancyInputs) -> Sequence[str]:
        return cluster.differences(inputs.tenancy(), self.cluster(inputs))

    def observe(self, inputs: TenancyInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The proofs as of now; what is not proven shows as not ready, so that `up` acts."""
        judged = cluster.observe_tenancy(inputs.tenancy(), self.cluster(inputs))
        return Live(judged.outputs(), {}) if judged else None

    def has_drifted(self, outputs: Properties) -> bool:
        return outputs.get("ready") is False

    def remove(self, inputs: TenancyInputs, before: Properties) -> None:  # noqa: ARG002
        cluster.remove_tenancy(inputs.tenant, self.cluster(inputs))


class OnDemandTenanciesProvider(ClusterProvider[OnDemandInputs]):
    """Makes none; those that the API made go with it."""

    model = OnDemandInputs

    def ensure(self, inputs: OnDemandInputs, before: Properties) -> Properties:  # noqa: ARG002
        return {}

    def remove(self, inputs: OnDemandInputs, before: Properties) -> None:  # noqa: ARG002
        cluster.remove_on_demand(inputs.declared, self.cluster(inputs))


class OnDemandTenancies(ModelResource, module="gpu", name="OnDemandTenancies"):
    """The tenancies that the API makes, of which the stack knows none by name."""

    provider = OnDemandTenanciesProvider


class TenancyPolicy(ModelResource, module="gpu", name="TenancyPolicy"):
    """A tenant whose isolation is proven."""

    provider = TenancyPolicyProvider
    ready: pulumi.Output[bool]
    """Whether namespace, quota, limits, network and admission policies are all enforced."""
    proofs: pulumi.Output[Sequence[str]]
    """Names of what is proven."""
    observed_generation: pulumi.Output[int]
    """Generation of the Tenancy object that the proofs are about."""
