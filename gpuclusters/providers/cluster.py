"""What the providers of things in a cluster have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuclusters.providers.reconciling import I, Properties, ReconcilingProvider

if TYPE_CHECKING:
    from gpuclusters.adapters.cluster_jobs import ClusterJobs


class ClusterProvider(ReconcilingProvider[I]):
    """Keeps something in the cluster that the input `kubeconfig` leads to."""

    identity = frozenset({"cluster"})
    sensitive = frozenset({"kubeconfig"})

    def cluster(self, inputs: Any) -> ClusterJobs:
        """The cluster."""
        # Imported late: the client takes half a second to load, and a program only declares.
        from gpuclusters.adapters.cluster_jobs import ClusterJobs

        return ClusterJobs(inputs.kubeconfig)

    def remove(self, inputs: I, before: Properties) -> None:
        """Nothing was made."""
