"""Row 6: Kata, the GPU Operator and this program do not work against each other."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.charts import Chart, LabChart
from gpuclusters.config.fault import finding, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kata import CcMode, Mechanism, OperatorResource, SandboxMode
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Path
from gpuclusters.kata import chart as kata_chart

_OPERATOR_VENDOR = "nvidia.com"
_SHOWN = 8


@rule(6, "caas.dra-with-kata")
def kata_gets_gpus_from_a_device_plugin(config: CaasConfig) -> Iterable[Finding]:
    if config.device_access.mechanism is Mechanism.DRA:
        yield finding(
            ("device-access", "mechanism"),
            "does not work with Kata, which reads no claims of Dynamic Resource Allocation",
            show(config.device_access.mechanism.value),
            "write device-plugin",
        )


@rule(6, "caas.kata-distribution")
def kata_knows_the_distribution(config: CaasConfig) -> Iterable[Finding]:
    stated = config.kata.distribution
    actual = config.kubernetes.distribution
    if stated is not None and stated is not actual:
        yield finding(
            ("kata", "distribution"),
            f"differs from kubernetes.distribution, which is {actual}",
            show(stated.value),
            f"write {actual}, or leave it out",
        )


@rule(6, "caas.operator-resources")
def operator_has_one_custom_resource(config: CaasConfig) -> Iterable[Finding]:
    if config.gpu_operator is None:
        return
    resources = config.gpu_operator.custom_resources
    path: Path = ("gpu-operator", "custom-resources")
    got = show([resource.value for resource in resources])
    both = {OperatorResource.CLUSTER_POLICY, OperatorResource.GPU_CLUSTER} <= set(resources)
    if both:
        yield finding(
            path,
            "names two resources of which the operator accepts one",
            got,
            "write [cluster-policy], and delete the GPUCluster",
        )
    elif OperatorResource.GPU_CLUSTER in resources:
        yield finding(
            path,
            "names gpu-cluster, which hands out GPUs by Dynamic Resource Allocation; Kata reads none",
            got,
            "write [cluster-policy]",
        )


@rule(6, "caas.operator-mode")
def operator_works_for_kata(config: CaasConfig) -> Iterable[Finding]:
    operator = config.gpu_operator
    if operator is not None and operator.sandbox_mode is not SandboxMode.KATA:
        yield finding(
            ("gpu-operator", "sandbox-mode"),
            "is not kata, so that the operator prepares the GPUs for something else",
            show(operator.sandbox_mode.value),
            "write kata",
        )


@rule(6, "caas.confidential-mode")
def confidential_mode_fits_the_shim(config: CaasConfig) -> Iterable[Finding]:
    if config.gpu_operator is None:
        return
    mode = config.gpu_operator.default_cc_mode
    shim = config.kata.shim
    needed = CcMode.ON if shim.confidential else CcMode.OFF
    if mode is not needed:
        kind = "confidential" if shim.confidential else "not confidential"
        yield finding(
            ("gpu-operator", "default-cc-mode"),
            f"keeps every pod pending: {shim.runtime_class} is {kind} and selects nodes with "
            f"cc.ready.state={'true' if shim.confidential else 'false'}",
            show(mode.value),
            f'write "{needed.value}" in quotes',
        )


@rule(6, "caas.feature-discovery-twice")
def one_node_feature_discovery(config: CaasConfig) -> Iterable[Finding]:
    operator = config.gpu_operator
    if operator and operator.node_feature_discovery and config.kata.node_feature_discovery:
        yield finding(
            ("kata", "node-feature-discovery"),
            "is on although the GPU Operator brings its own",
            "true",
            "write false, or set gpu-operator.node-feature-discovery: false",
        )


@rule(6, "caas.resource-owner-twice")
def one_owner_of_the_resource(config: CaasConfig) -> Iterable[Finding]:
    operator = config.gpu_operator
    if operator is None or not operator.sandbox_device_plugin:
        return
    announced = f"{_OPERATOR_VENDOR}/{operator.sandbox_device_plugin_alias}"
    if announced == config.device_access.resource_name:
        yield finding(
            ("gpu-operator", "sandbox-device-plugin"),
            f"announces {announced}, and so does the device plugin of this cluster",
            "true",
            "write false, or give one of the two another name",
        )


@rule(6, "caas.chart-value-unknown")
def chart_reads_its_values(config: CaasConfig) -> Iterable[Finding]:
    for unknown in kata_chart.unknown_keys(config.kata.values):
        near = unknown.nearest
        known = ", ".join(unknown.known[:_SHOWN]) + (", …" if len(unknown.known) > _SHOWN else "")
        yield finding(
            ("kata", "values", *unknown.path),
            f"is not a value that the chart kata-deploy {kata_chart.VERSION} reads",
            f"the key {show(unknown.path[-1])}",
            f"did you mean {near}?" if near else f"remove it; the keys here are {known}",
        )


@rule(6, "caas.chart-value-twice")
def chart_values_are_set_once(config: CaasConfig) -> Iterable[Finding]:
    for key in config.kata.values:
        if key in kata_chart.OWNED:
            yield finding(
                ("kata", "values", key),
                "is set by this program",
                f"the key {show(key)}",
                f"remove it; {kata_chart.OWNED[key]}",
            )


@rule(6, "caas.lab-chart")
def stand_ins_are_of_the_lab(config: CaasConfig) -> Iterable[Finding]:
    if isinstance(config.hosts, LabHosts):
        return
    paths: tuple[tuple[Path, Chart | None], ...] = (
        (("kata", "chart", "source"), config.kata.chart),
        (("storage", "csi-driver-chart", "source"), config.storage.csi_driver_chart),
    )
    for path, chart in paths:
        if isinstance(chart, LabChart):
            yield finding(
                path,
                "is the lab's stand-in, which installs nothing, while hosts are not the lab's",
                show(chart.source),
                "write registry, or file with a path",
            )
