"""Row 6: Kata, the GPU Operator and this program do not work against each other."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import Flaw, Path, show
from gpuclusters.config.kata import CcMode, Mechanism, OperatorResource, SandboxMode
from gpuclusters.config.rules.rule import rule

_OPERATOR_VENDOR = "nvidia.com"


@rule(6, needs=["device_access"])
def kata_gets_gpus_from_a_device_plugin(config: CaasConfig) -> Iterable[Flaw]:
    """Kata reads the devices of device plugins only; claims of DRA never reach the VM."""
    if config.device_access.mechanism is Mechanism.DRA:
        yield Flaw(
            ("device-access", "mechanism"),
            "does not work with Kata, which reads no claims of Dynamic Resource Allocation",
            show(config.device_access.mechanism.value),
            "write device-plugin",
        )


@rule(6, needs=["kubernetes", "kata"])
def kata_knows_the_distribution(config: CaasConfig) -> Iterable[Flaw]:
    """kata-deploy writes to the distribution's own containerd; the wrong one is an error of its chart."""
    stated = config.kata.distribution
    actual = config.kubernetes.distribution
    if stated is not None and stated is not actual:
        yield Flaw(
            ("kata", "distribution"),
            f"differs from kubernetes.distribution, which is {actual}",
            show(stated.value),
            f"write {actual}, or leave it out",
        )


@rule(6, needs=["gpu_operator"])
def operator_has_one_custom_resource(config: CaasConfig) -> Iterable[Flaw]:
    """ClusterPolicy and GPUCluster exclude each other, and GPUCluster means DRA."""
    if config.gpu_operator is None:
        return
    resources = config.gpu_operator.custom_resources
    path: Path = ("gpu-operator", "custom-resources")
    got = show([resource.value for resource in resources])
    both = {OperatorResource.CLUSTER_POLICY, OperatorResource.GPU_CLUSTER} <= set(resources)
    if both:
        yield Flaw(
            path,
            "names two resources of which the operator accepts one",
            got,
            "write [cluster-policy], and delete the GPUCluster",
        )
    elif OperatorResource.GPU_CLUSTER in resources:
        yield Flaw(
            path,
            "names gpu-cluster, which hands out GPUs by Dynamic Resource Allocation; Kata reads none",
            got,
            "write [cluster-policy]",
        )


@rule(6, needs=["gpu_operator"])
def operator_works_for_kata(config: CaasConfig) -> Iterable[Flaw]:
    """The operator prepares GPUs for Kata, not for KubeVirt, which is its default."""
    operator = config.gpu_operator
    if operator is not None and operator.sandbox_mode is not SandboxMode.KATA:
        yield Flaw(
            ("gpu-operator", "sandbox-mode"),
            "is not kata, so that the operator prepares the GPUs for something else",
            show(operator.sandbox_mode.value),
            "write kata",
        )


@rule(6, needs=["gpu_operator", "kata"])
def confidential_mode_fits_the_shim(config: CaasConfig) -> Iterable[Flaw]:
    """The RuntimeClass selects nodes by whether their GPUs are in confidential-computing mode."""
    if config.gpu_operator is None:
        return
    mode = config.gpu_operator.default_cc_mode
    shim = config.kata.shim
    needed = CcMode.ON if shim.confidential else CcMode.OFF
    if mode is not needed:
        kind = "confidential" if shim.confidential else "not confidential"
        yield Flaw(
            ("gpu-operator", "default-cc-mode"),
            f"keeps every pod pending: {shim.runtime_class} is {kind} and selects nodes with "
            f"cc.ready.state={'true' if shim.confidential else 'false'}",
            show(mode.value),
            f'write "{needed.value}" in quotes',
        )


@rule(6, needs=["gpu_operator", "kata"])
def one_node_feature_discovery(config: CaasConfig) -> Iterable[Flaw]:
    """Two instances of node feature discovery remove each other's labels."""
    operator = config.gpu_operator
    if operator and operator.node_feature_discovery and config.kata.node_feature_discovery:
        yield Flaw(
            ("kata", "node-feature-discovery"),
            "is on although the GPU Operator brings its own",
            "true",
            "write false, or set gpu-operator.node-feature-discovery: false",
        )


@rule(6, needs=["gpu_operator", "device_access"])
def one_owner_of_the_resource(config: CaasConfig) -> Iterable[Flaw]:
    """Of two device plugins for one resource the last to register wins, silently."""
    operator = config.gpu_operator
    if operator is None or not operator.sandbox_device_plugin:
        return
    announced = f"{_OPERATOR_VENDOR}/{operator.sandbox_device_plugin_alias}"
    if announced == config.device_access.resource_name:
        yield Flaw(
            ("gpu-operator", "sandbox-device-plugin"),
            f"announces {announced}, and so does the device plugin of this cluster",
            "true",
            "write false, or give one of the two another name",
        )


RULES = (
    kata_gets_gpus_from_a_device_plugin,
    kata_knows_the_distribution,
    operator_has_one_custom_resource,
    operator_works_for_kata,
    confidential_mode_fits_the_shim,
    one_node_feature_discovery,
    one_owner_of_the_resource,
)
