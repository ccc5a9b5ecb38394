"""Updates of the operator's driver, one node at a time, as `nvidia.com/gpu-driver-upgrade-state` tells.

States after NVIDIA/k8s-operator-libs, `pkg/upgrade/consts.go`: upgrade-required, cordon-required,
pod-restart-required, validation-required, uncordon-required, upgrade-done. This plays those that are visible
without a drain.
"""

from typing import Any, Final

from lab.cluster import NODE, POD, Cluster
from lab.gpu_operator.labelling import Labels
from lab.gpu_operator.operands import DRIVER
from lab.gpu_operator.view import View, is_ready, labels

UPGRADE_LABEL: Final = "nvidia.com/gpu-driver-upgrade-state"
REQUIRED: Final = "upgrade-required"
RESTART: Final = "pod-restart-required"
VALIDATION: Final = "validation-required"
DONE: Final = "upgrade-done"
_UNDER_WAY: Final = (RESTART, VALIDATION)


async def look(view: View, put: Labels, cluster: Cluster) -> None:
    """Take every node one step further, no more at a time than the policy lets."""
    section = view.spec.get("driver") or {}
    rules = section.get("upgradePolicy") or {}
    if not section.get("enabled") or not rules.get("autoUpgrade", True):
        return
    at_once = int(rules.get("maxParallelUpgrades", 1)) or len(view.nodes)
    states = {name: labels(view.nodes[name]).get(UPGRADE_LABEL, "") for name in view.gpu_nodes}
    under_way = sum(state in _UNDER_WAY for state in states.values())
    for name, state in states.items():
        pod = view.pod(DRIVER, name)
        if view.has_host_driver(name) or pod is None:
            continue
        outdated = pod["spec"]["containers"][0]["image"] != view.driver_image()
        if state in ("", DONE) and outdated:
            await put.change(name, {UPGRADE_LABEL: REQUIRED})
        elif state == "" and is_ready(pod):
            await put.change(name, {UPGRADE_LABEL: DONE})
        elif state == REQUIRED and under_way < at_once:
            under_way += 1
            await _cordon(cluster, name, closed=True)
            await put.change(name, {UPGRADE_LABEL: RESTART})
        elif state == RESTART and outdated:
            await cluster.delete(POD, pod["metadata"]["name"], view.namespace)
        elif state == RESTART and is_ready(pod):
            await put.change(name, {UPGRADE_LABEL: VALIDATION})
        elif state == VALIDATION:
            await _cordon(cluster, name, closed=False)
            await put.change(name, {UPGRADE_LABEL: DONE})


async def _cordon(cluster: Cluster, node: str, *, closed: bool) -> None:
    body: dict[str, Any] = {"spec": {"unschedulable": True if closed else None}}
    await cluster.patch(NODE, node, "", body)
