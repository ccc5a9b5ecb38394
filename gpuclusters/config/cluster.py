"""The configuration of one cluster, whatever its type."""

from __future__ import annotations

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.usernetes import UsernetesConfig

ClusterConfig = CaasConfig | Rke2Config | UsernetesConfig
