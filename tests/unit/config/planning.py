"""What components make of configurations that are right."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

import yaml

from gpuclusters.compat.rke2_matrix import operator_major
from gpuclusters.config import drift_expectations, gke_plan, rke2_machines, rke2_plan
from gpuclusters.config import usernetes_plan as usernetes
from gpuclusters.config.plan import plan, table
from gpuclusters.config.rke2_cluster import MadeCluster
from gpuclusters.config.stack import ClusterType, StackConfig
from gpuclusters.fabric.table import BOARDS
from gpuclusters.gcp import firewall_rules
from gpuclusters.gpu_operator import keys
from gpuclusters.gpu_operator.objects import with_configs
from gpuclusters.proof.checks import CheckLevel, Level
from gpuclusters.rke2 import host_config
from gpuclusters.rke2.releases import MANIFESTS, Role


def _read(files: dict[str, Any]) -> dict[str, Any]:
    return {name: yaml.safe_load(text) for name, text in files.items()}


def _rke2(section: Any) -> dict[str, Any]:
    configs = rke2_plan.operator_configs(section)
    values = with_configs(rke2_plan.operator_values(section), configs)
    assert list(keys.problems(values, operator_major(section.operator.version))) == []
    shows, proven = rke2_machines.expected(section), rke2_plan.proof_nodes(section)
    assert set(shows) == {name for one in section.pools if one.gpu for name in one.nodes}
    assert all(one.resources for one in proven)
    ways = ("mig", "shared")
    return {
        "operator": values,
        "configs": {name: _read(files) for name, files in configs.items()},
        "shows": shows,
        "proof": rke2_plan.proof_arguments(section, Level.L0),
        "proven": {one.name: [way for way in ways if getattr(one, way)] for one in proven},
        "images": rke2_plan.images(section),
        "monitoring": rke2_plan.monitoring_values(section),
        "drift": drift_expectations.expected(section, {}),
        **(_made(section) if isinstance(section, MadeCluster) else {}),
    }


def _made(section: MadeCluster) -> dict[str, Any]:
    machines = {one.name: one for one in rke2_machines.machines(section)}
    layouts = {name: one.layout for name, one in rke2_machines.mig_nodes(section).items()}
    plugin = rke2_machines.plugin_keys(section)
    assert set(layouts).isdisjoint(plugin)
    of = rke2_plan.settings(section, registration_address="10.9.0.100")
    files = {role: host_config.files(of, role) for role in Role}
    charts = [text for path, text in files[Role.SERVER].items() if path.startswith(MANIFESTS)]
    assert not any(path.startswith(MANIFESTS) for path in files[Role.AGENT])
    agent = [one for one in machines.values() if one.role is Role.AGENT][:1]
    return {
        "machines": machines,
        "names": list(machines),
        "mig": {"strategy": rke2_machines.mig_strategy(section), "layouts": layouts},
        "plugin": plugin,
        "server": host_config.config(of, Role.SERVER, first=True, node_name="s1"),
        "next": host_config.config(of, Role.SERVER, first=False, node_name="s2"),
        "agent": [
            host_config.config(of, Role.AGENT, first=False, node_name=one.name, labels=one.labels)
            for one in agent
        ],
        "chart": [
            (body["kind"], body["metadata"]["name"], yaml.safe_load(body["spec"]["valuesContent"]))
            for body in map(yaml.safe_load, charts)
        ],
    }


def _usernetes(section: Any) -> dict[str, Any]:
    asked, versions = usernetes.arguments(section, CheckLevel.TRAINING), usernetes.versions(section)
    assert asked["nodes"]
    assert versions.driver == usernetes.driver_version(section)
    network = usernetes.network(section)
    return {
        "driver": usernetes.driver(section),
        "versions": versions,
        "release": (versions.generation, versions.archive_url),
        "network": network,
        "api": usernetes.api(section),
        "asked": asked,
        "takes pods": [one["name"] for one in asked["nodes"] if one["takes_pods"]],
        "firewall": [(one.protocol, one.ports) for one in firewall_rules.usernetes(network.ports)],
        "ports": usernetes.tcp_ports(section),
    }


def _caas(section: Any) -> dict[str, Any]:
    made = plan(section)
    return {
        "containerd": tomllib.loads(section.kubernetes.containerd.drop_in),
        "kubelet": yaml.safe_load(made.kubelet_drop_in),
        "sizes": table(section).sizes,
        "cuts": {node.name: [cut.id for cut in node.partitions] for node in made.nodes},
        "modules": BOARDS[made.preset.baseboard].module_map,
    }


PARTS: dict[ClusterType, Callable[[Any], Any]] = {
    ClusterType.CAAS: _caas,
    ClusterType.RKE2: _rke2,
    ClusterType.USERNETES: _usernetes,
    ClusterType.GKE: lambda section: gke_plan.plan(section, "p-s"),
}


def planned(config: StackConfig) -> Any:
    """A configuration that is right means something to the components of its type: what each is told."""
    return PARTS[config.cluster_type](config.section)
