"""Rows 37 and 39: values of the operator's chart that it reads, and that nothing else decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuclusters.compat.rke2_matrix import operator_major
from gpuclusters.config.fault import finding, show
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding
from gpuclusters.gpu_operator import keys
from gpuclusters.gpu_operator.keys import at

_DECIDED: Mapping[str, str] = {
    "driver.enabled": "write driver.source",
    "driver.version": "write driver.version, or driver.branch",
    "driver.usePrecompiled": "write driver.source: precompiled",
    "driver.kernelModuleType": "write driver.modules",
    "driver.repoConfig.configMapName": "write driver.package-mirror",
    "driver.nvidiaDriverCRD.enabled": "remove it: pools with drivers of their own have driver.source: host",
    "cdi.nriPluginEnabled": "write operator.nri-plugin",
    "nfd.enabled": "write operator.node-feature-discovery",
    "mig.strategy": "write sharing.strategy",
    "migManager.config": "write sharing.layouts, and pools[].mig",
    "devicePlugin.config": "write sharing: {kind: time-slicing, …} or mps",
    "dcgm.enabled": "write proof.level: from L2 on it is on",
    "dcgmExporter.config": "remove it: with metrics this program brings a list with ECC and throttling",
    "dcgmExporter.serviceMonitor.enabled": "write metrics.kind",
    "operator.upgradeCRD": "remove it: this program applies the definitions of every release before it",
    "operator.cleanupCRD": "remove it: with it, destroy waits for a job on a node that may be gone",
    "clusterPolicy.deployCR": "remove it: without a ClusterPolicy nothing is installed",
    "gpuCluster.deployCR": "remove it: DRA instead of the device plugin is not built in this version",
    "sandboxWorkloads.enabled": "remove it: GPUs for virtual machines are cluster-type caas",
    "platform.openshift": "remove it: this is RKE2",
}


@rule(37, "rke2.chart-value-unknown")
def the_chart_reads_every_value(config: Rke2Config) -> Iterable[Finding]:
    values = config.operator.values
    for problem in keys.problems(values, operator_major(config.operator.version)):
        yield finding(
            ("operator", "values", *problem.path),
            problem.wrong,
            _shown(values, problem.path),
            problem.instead,
        )


def _shown(values: Mapping[str, object], path: tuple[str, ...]) -> str:
    """What was written there; a variable stands in a list, under its name."""
    found = at(values, ".".join(path))
    if found is None and len(path) > 1 and path[-2] == "env":
        entries = at(values, ".".join(path[:-1])) or ()
        found = next((e.get("value") for e in entries if e.get("name") == path[-1]), None)
    return show(found, path)


@rule(39, "rke2.chart-value-twice")
def values_are_not_decided_twice(config: Rke2Config) -> Iterable[Finding]:
    for key, instead in _DECIDED.items():
        found = at(config.operator.values, key)
        if found is not None:
            yield finding(
                ("operator", "values", *key.split(".")),
                "is decided by this configuration already",
                show(found, tuple(key.split("."))),
                instead,
            )
