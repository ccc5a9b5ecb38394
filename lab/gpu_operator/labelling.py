"""The labels that node feature discovery, the operator and GPU feature discovery put on nodes."""

from collections.abc import Mapping
from typing import Any, Final

from lab.cluster import NODE, Cluster
from lab.gpu_operator.operands import DEPLOY, DRIVER, MIG_MANAGER, OPERANDS
from lab.gpu_operator.sharing import Sharing, product
from lab.gpu_operator.view import View, labels
from lab.hosts import GpuState

FEATURES: Final = "nvidia.com/gpu.deploy.gpu-feature-discovery"
MIG_CONFIG: Final = "nvidia.com/mig.config"
MIG_CAPABLE: Final = "nvidia.com/mig.capable"
NFD: Final = "feature.node.kubernetes.io/"


class Labels:
    """Writes labels by field manager, each set only when it changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[str, str], Mapping[str, str]] = {}

    def forget(self, node: str) -> None:
        self._known = {key: value for key, value in self._known.items() if key[1] != node}

    async def put(self, manager: str, node: str, wanted: Mapping[str, str]) -> None:
        """These labels are all that the manager says about the node."""
        if self._known.get((manager, node)) == wanted:
            return
        await self._cluster.apply(
            NODE,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node, "labels": dict(wanted)},
            },
            manager=manager,
        )
        self._known[(manager, node)] = dict(wanted)

    async def change(self, node: str, changes: Mapping[str, str | None]) -> None:
        """Labels that others own too: written as the operator does, without owning them alone."""
        await self._cluster.patch(NODE, node, "", {"metadata": {"labels": dict(changes)}})


def discovered(state: GpuState) -> dict[str, str]:
    """What node feature discovery says of a machine."""
    found = {
        f"{NFD}system-os_release.ID": "ubuntu",
        f"{NFD}system-os_release.VERSION_ID": "24.04",
        f"{NFD}kernel-version.major": "6",
    }
    return found | ({f"{NFD}pci-10de.present": "true"} if state.count else {})


def deployed(view: View, node: str) -> dict[str, str]:
    """What the operator says of a GPU node: which operands come there."""
    said = {"nvidia.com/gpu.present": "true"}
    if labels(view.nodes[node]).get(f"{DEPLOY}operands") == "false":
        return said
    capable = view.machines[node].mig is not None
    for operand in OPERANDS:
        if operand is MIG_MANAGER and not capable:
            continue
        said[DEPLOY + operand.label] = "true"
    if view.has_host_driver(node):
        # The driver manager finds the host's driver, and its pod leaves.
        said[DEPLOY + DRIVER.label] = "pre-installed"
    return said


def features(view: View, node: str, sharing: Sharing) -> dict[str, str]:
    """What GPU feature discovery says of a node whose driver and toolkit work."""
    state = view.state(node)
    strategy = str((view.spec.get("mig") or {}).get("strategy", "single"))
    return {
        "nvidia.com/gpu.product": product(state, strategy, sharing),
        "nvidia.com/gpu.count": str(state.count),
        "nvidia.com/gpu.replicas": str(sharing.replicas.get("nvidia.com/gpu", 1)),
        "nvidia.com/mig.strategy": strategy,
        MIG_CAPABLE: str(state.mig is not None).lower(),
        "nvidia.com/cuda.driver-version.full": _driver(view, node),
    }


def _driver(view: View, node: str) -> str:
    """The host's, or that of the container that brought it, whose tag ends with the system's name."""
    image = view.memory.drivers.get(node, "")
    host = view.state(node).driver_version
    return host or image.rpartition(":")[2].partition("-")[0]


def default_layout(view: View, node: str) -> str:
    """The layout that the operator sets where a capable node has none; empty: none.

    "The operator sets all-disabled itself when capable and unlabelled", only if that is the default.
    """
    section = view.spec.get("migManager") or {}
    default = str((section.get("config") or {}).get("default", ""))
    needed = view.machines[node].mig is not None and section.get("enabled")
    unset = MIG_CONFIG not in labels(view.nodes[node])
    return default if needed and unset and default == "all-disabled" else ""


def config(view: View, section: str, node: str) -> tuple[str, Any]:
    """Key and text of the device plugin's configuration for a node; empty if it has none."""
    said: Mapping[str, Any] = (view.spec.get(section) or {}).get("config") or {}
    data = view.configs.get(str(said.get("name", "")), {})
    key = labels(view.nodes[node]).get("nvidia.com/device-plugin.config") or said.get("default", "")
    return str(key), data.get(str(key), "")
