"""The configuration of one cluster, whatever its type, and the lab on this computer."""

from __future__ import annotations

from enum import StrEnum

from gpuclusters.config.base import Section
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kubernetes import LabKubernetes
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.usernetes import UsernetesConfig

ClusterConfig = CaasConfig | Rke2Config | UsernetesConfig

KEY = "lab"
"""Key of the section in a stack file; it is beside those of the cluster types, which share the lab."""


class LabNodes(StrEnum):
    """What the nodes of a lab are."""

    AUTO = "auto"
    REAL = "real"
    SIMULATED = "simulated"


class LabConfig(Section):
    """The lab: read by `gpu-clusters` when it starts one, by no stack."""

    nodes: LabNodes = LabNodes.AUTO
    """`real`: a kubelet, containerd and runc for each node, which needs Linux with root. `simulated`: their
    part is played. `auto`: real where this computer can, and it says which it chose and why. Nodes of
    `usernetes` are always played: they are inside of containers."""


def uses_lab(config: ClusterConfig) -> bool:
    """Whether any part of the cluster is."""
    if isinstance(config.hosts, LabHosts):
        return True
    return isinstance(config, CaasConfig) and isinstance(config.kubernetes, LabKubernetes)
