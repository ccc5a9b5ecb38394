"""Whether a cluster, or a part of it, is in the lab on this computer."""

from __future__ import annotations

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kubernetes import LabKubernetes


def uses_lab(config: ClusterConfig) -> bool:
    """Whether any part of the cluster is."""
    if isinstance(config.hosts, LabHosts):
        return True
    return isinstance(config, CaasConfig) and isinstance(config.kubernetes, LabKubernetes)
