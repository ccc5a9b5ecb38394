"""The GPU Operator as this program installs it: names, objects, releases and their order.

Sources: NVIDIA/gpu-operator v26.7.0 (`deployments/gpu-operator`, `controllers/clusterpolicy_controller.go`,
`internal/conditions`), its documentation in NVIDIA/cloud-native-docs, read in August 2026.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from gpuclusters.compat.versions import parse_release, release
from gpuclusters.core.ports import ObjectKind

RELEASE: Final = "gpu-operator"
NAMESPACE: Final = "gpu-operator"
REPOSITORY: Final = "https://helm.ngc.nvidia.com/nvidia"
POLICY: Final = "cluster-policy"
"""Name of the one ClusterPolicy that the chart makes."""

_cluster_scoped, _namespaced = (partial(ObjectKind, namespaced=scope) for scope in (False, True))
CLUSTER_POLICY = _cluster_scoped("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy")
GPU_CLUSTER = _cluster_scoped("nvidia.com", "v1alpha1", "gpuclusters", "GPUCluster")
CRD = _cluster_scoped(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"
)
DAEMON_SET = _namespaced("apps", "v1", "daemonsets", "DaemonSet")
EVENT = _namespaced("", "v1", "events", "Event")
SECRET = _namespaced("", "v1", "secrets", "Secret")
HELM_CHART = _namespaced("helm.cattle.io", "v1", "helmcharts", "HelmChart")

PRESENT_LABEL: Final = "nvidia.com/gpu.present"
DEPLOY_LABEL: Final = "nvidia.com/gpu.deploy.operands"
UPGRADE_LABEL: Final = "nvidia.com/gpu-driver-upgrade-state"
MIG_LABEL: Final = "nvidia.com/mig.config"
MIG_STATE_LABEL: Final = "nvidia.com/mig.config.state"
PLUGIN_CONFIG_LABEL: Final = "nvidia.com/device-plugin.config"
RESOURCE_PREFIX: Final = "nvidia.com/"

CONFIGS: Final[Mapping[str, tuple[str, str]]] = {
    "device-plugin": ("devicePlugin", "config"),
    "dcgm-metrics": ("dcgmExporter", "config"),
    "mig-parted": ("migManager", "config"),
}
"""ConfigMaps that operands read, and the chart's value that holds each name. An operand does not notice that
its ConfigMap changed, so that a change has to be another name."""

MAJORS: Final = ("24.6", "24.9", "25.3", "25.10", "26.3", "26.7")
"""Major releases in order; an upgrade goes to the same or the next one. As of 2026-08-20."""


Object = Mapping[str, Any]


def labels(body: Object | None) -> Mapping[str, str]:
    return ((body or {}).get("metadata") or {}).get("labels") or {}


def offered(node: Object | None) -> dict[str, int]:
    """What pods can ask of a node, by resource of NVIDIA's."""
    found = ((node or {}).get("status") or {}).get("allocatable") or {}
    return {r: int(n) for r, n in sorted(found.items()) if r.startswith(RESOURCE_PREFIX)}


def config_map_name(config: str, data: Mapping[str, str]) -> str:
    """Name of a ConfigMap with this content: other content, other name."""
    digest = hashlib.sha256(json.dumps(dict(data), sort_keys=True).encode()).hexdigest()
    return f"{config}-{digest[:10]}"


def with_configs(
    values: Mapping[str, Any], configs: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """The chart's values with the names of these ConfigMaps; ValueError where no operand reads one."""
    result = dict(values)
    for config, data in sorted(configs.items()):
        if config not in CONFIGS:
            known = ", ".join(sorted(CONFIGS))
            raise ValueError(f"no operand reads a ConfigMap {config!r}; there are {known}")
        operand, key = CONFIGS[config]
        part = dict(result.get(operand) or {})
        entry = dict(part.get(key) or {})
        wanted = {"create": False, "name": config_map_name(config, data)}
        if said := {n: entry[n] for n in wanted if n in entry and entry[n] != wanted[n]}:
            raise ValueError(
                f"values.{operand}.{key} says {said} although this program makes that ConfigMap; "
                f"leave {' and '.join(sorted(said))} out"
            )
        result[operand] = part | {key: entry | wanted}
    return result


def nulls(values: Mapping[str, Any], at: str = "values") -> list[str]:
    """Paths whose value is null: the release keeps them, and the chart's templates fail on some."""
    below = (
        nulls(value, f"{at}.{key}") if isinstance(value, Mapping) else [f"{at}.{key}"]
        for key, value in values.items()
        if value is None or isinstance(value, Mapping)
    )
    return [path for paths in below for path in paths]


def upgrade_fault(installed: str, wanted: str) -> str:
    """Why this upgrade is not supported; empty if it is.

    Rule: "upgrade to the same or the next major version" (NVIDIA GPU Operator, life cycle policy).
    """
    before, after = parse_release(installed), parse_release(wanted)
    if before is None or after is None:
        return ""
    old, new = before[:2], after[:2]
    if new < old:
        back = "the operator has no way back"
        return f"{wanted} is older than what is installed, {installed}; {back}"
    if between := [major for major in MAJORS if old < release(major) < new]:
        only = "only the same or the next major release is supported"
        return f"{installed} → {wanted} skips {', '.join(between)}; {only}"
    return ""
