"""The status of a ClusterPolicy after NVIDIA/gpu-operator v26.7.0: reasons and messages. Pure.

Sources: `internal/conditions/{consts,clusterpolicy}.go`, `controllers/clusterpolicy_controller.go`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lab.kubelet.node_objects import timestamp


def status(
    policy: Mapping[str, Any],
    namespace: str,
    *,
    has_nfd_labels: bool,
    has_gpu_nodes: bool,
    not_ready: Sequence[str],
) -> dict[str, Any]:
    """The status after one reconciliation; conditions that did not change keep their time."""
    ready = not not_ready
    if not_ready:
        reason = "OperandNotReady"
        message = f"ClusterPolicy is not ready; states not ready: [{' '.join(not_ready)}]"
    elif not has_nfd_labels:
        reason, message = "NFDLabelsMissing", "No NFD labels found"
    elif not has_gpu_nodes:
        reason = "NoGPUNodes"
        message = "No GPU node found, watching for new nodes to join the cluster."
    else:
        reason = "Reconciled"
        message = "ClusterPolicy is ready as all resources have been successfully reconciled"
    wanted = (
        ("Ready", str(ready), reason if ready else "Error", message if ready else ""),
        ("Error", str(not ready), "Ready" if ready else reason, "" if ready else message),
    )
    known = (policy.get("status") or {}).get("conditions") or ()
    return {
        "state": "ready" if ready else "notReady",
        "namespace": namespace,
        "conditions": [_condition(known, *one) for one in wanted],
    }


def _condition(
    known: Sequence[Mapping[str, Any]], kind: str, value: str, reason: str, message: str
) -> dict[str, Any]:
    before = next((one for one in known if one["type"] == kind), {})
    same = before.get("status") == value
    now = timestamp(datetime.now(UTC))
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": before.get("lastTransitionTime", now) if same else now,
    }
