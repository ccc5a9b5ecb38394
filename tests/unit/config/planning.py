"""What components make of configurations that are right."""

from __future__ import annotations

from typing import Any

from gpuclusters.compat.rke2_matrix import operator_major
from gpuclusters.config import gke_plan, rke2_machines, rke2_plan, usernetes_plan
from gpuclusters.config.plan import plan
from gpuclusters.config.rke2_cluster import MadeCluster
from gpuclusters.config.stack import ClusterType, StackConfig
from gpuclusters.gpu_operator import keys
from gpuclusters.gpu_operator.objects import with_configs
from gpuclusters.proof.checks import CheckLevel


def _planned_rke2(section: Any) -> None:
    values = rke2_plan.operator_values(section)
    configs = rke2_plan.operator_configs(section)
    major = operator_major(section.operator.version)
    assert list(keys.problems(with_configs(values, configs), major)) == []
    offered = rke2_machines.expected(section)
    assert set(offered) == {name for one in section.pools if one.gpu for name in one.nodes}
    assert all(one.resources for one in rke2_plan.proof_nodes(section))
    if isinstance(section, MadeCluster):
        assert set(rke2_machines.mig_nodes(section)).isdisjoint(rke2_machines.plugin_keys(section))
        rke2_plan.settings(section, registration_address="10.0.0.1")


def _planned_usernetes(section: Any) -> None:
    assert usernetes_plan.arguments(section, CheckLevel.TRAINING)["nodes"]
    assert usernetes_plan.network(section).ports.tcp
    versions = usernetes_plan.versions(section)
    assert versions.driver == usernetes_plan.driver_version(section)
    assert usernetes_plan.api(section).through in ("address", "tunnel", "loopback")


PLANNED = {
    ClusterType.CAAS: plan,
    ClusterType.RKE2: _planned_rke2,
    ClusterType.USERNETES: _planned_usernetes,
    ClusterType.GKE: lambda section: gke_plan.plan(section, "p-s"),
}


def planned(config: StackConfig) -> None:
    """A configuration that is right means something to the components of its type."""
    PLANNED[config.cluster_type](config.section)
