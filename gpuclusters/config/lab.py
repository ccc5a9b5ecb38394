"""Whether a cluster, or a part of it, is in the lab on this computer."""

from __future__ import annotations

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kubernetes import LabKubernetes
from gpuclusters.config.rke2_cluster import Rke2Config


def uses_lab(config: CaasConfig | Rke2Config) -> bool:
    """Whether any part of the cluster is."""
    if isinstance(config, Rke2Config):
        return isinstance(config.hosts, LabHosts)
    return isinstance(config.hosts, LabHosts) or isinstance(config.kubernetes, LabKubernetes)
