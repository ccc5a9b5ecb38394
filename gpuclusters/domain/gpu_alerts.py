"""Alert rules of an rke2 cluster's GPUs, as data.

Every expression names metrics of `gpu_counters`, of the GPU operator, of kube-state-metrics, or the
recording rule `EXPECTED` that says what the configuration promised. None uses the label `Hostname`,
which the exporter renames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpuclusters.domain.gpu_alerts_xid import Urgency, pattern

EXPECTED = "gpu_clusters:node_gpus_expected"
"""Recorded by us: how many of a resource a node must offer."""
PREFIX = "Rke2Gpu"
RULES_NAME = "gpu-clusters-gpus"

OPERATOR_METRICS: Mapping[str, frozenset[str]] = {
    name: frozenset({"namespace", "pod", "job", "instance", "service", "endpoint", "container"})
    for name in (
        "gpu_operator_gpu_nodes_total",
        "gpu_operator_reconciliation_status",
        "gpu_operator_reconciliation_total",
        "gpu_operator_reconciliation_failed_total",
        "gpu_operator_reconciliation_has_nfd_labels",
        "gpu_operator_reconciliation_last_success_ts_seconds",
    )
}
"""What the operator exports (controllers/operator_metrics.go of NVIDIA/gpu-operator)."""
KUBE_STATE_METRICS: Mapping[str, frozenset[str]] = {
    "kube_node_status_allocatable": frozenset({"node", "resource", "unit"}),
    "kube_node_status_capacity": frozenset({"node", "resource", "unit"}),
    "kube_pod_container_resource_requests": frozenset(
        {"node", "resource", "unit", "namespace", "pod", "container"}
    ),
    "kube_pod_status_phase": frozenset({"namespace", "pod", "phase"}),
}
"""What we ask of kube-state-metrics, which both monitoring charts install."""

Severity = Literal["critical", "warning", "info"]
_GPU = "GPU {{ $labels.gpu }} of {{ $labels.node }}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One rule."""

    name: str
    """Without `PREFIX`."""
    expr: str
    wait: str
    """How long it must hold, as Prometheus writes durations."""
    severity: Severity
    summary: str
    description: str
    runbook: str
    """What to do, in a sentence or two."""

    def document(self) -> dict[str, Any]:
        """As in a rule file."""
        return {
            "alert": PREFIX + self.name,
            "expr": self.expr,
            "for": self.wait,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook": self.runbook,
            },
        }


ERRORS: tuple[Alert, ...] = (
    Alert(
        name="XidCritical",
        expr=(
            "max by (node, gpu, UUID, xid) (DCGM_EXP_XID_ERRORS_COUNT"
            f'{{xid=~"{pattern(Urgency.PAGE)}"}}) > 0'
        ),
        wait="0s",
        severity="critical",
        summary=f"{_GPU} reports XID {{{{ $labels.xid }}}}.",
        description="The GPU, its memory or its links are not to be trusted until it was reset.",
        runbook="Cordon the node, let its pods end, and do what the table of XIDs says about the code.",
    ),
    Alert(
        name="XidToLookAt",
        expr=(
            "max by (node, gpu, UUID, xid) (DCGM_EXP_XID_ERRORS_COUNT"
            f'{{xid!="", xid!~"0|{pattern(Urgency.PAGE)}|{pattern(Urgency.IGNORE)}"}}) > 0'
        ),
        wait="0s",
        severity="warning",
        summary=f"{_GPU} reports XID {{{{ $labels.xid }}}}.",
        description="The code neither calls for a reset nor is one that may be ignored.",
        runbook="Look the code up in the table of XIDs, in NVIDIA's catalogue and in `dmesg` of the node.",
    ),
    Alert(
        name="EccDoubleBit",
        expr="max by (node, gpu, UUID) (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL) > 0",
        wait="0s",
        severity="critical",
        summary=f"{_GPU} had {{{{ $value }}}} double-bit ECC errors since its driver loaded.",
        description="Data in its memory was lost; what ran there may have computed on it.",
        runbook="Drain the node and reset the GPU. If it comes back within days, replace the GPU.",
    ),
    Alert(
        name="RowRemapFailure",
        expr="max by (node, gpu, UUID) (DCGM_FI_DEV_ROW_REMAP_FAILURE) > 0",
        wait="0s",
        severity="critical",
        summary=f"{_GPU} could not remap a bad row of its memory.",
        description="The spare rows are used up, or remapping failed.",
        runbook="Take the node out of service and have the GPU replaced; this does not heal.",
    ),
    Alert(
        name="RowRemapped",
        expr="sum by (node, gpu, UUID) (increase(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS[1h])) > 0",
        wait="0s",
        severity="warning",
        summary=f"{_GPU} remapped a row of its memory after an uncorrectable error.",
        description="The remapping takes effect with the next reset of the GPU.",
        runbook="Reset the GPU when it is free. Several in a month: plan its replacement.",
    ),
    Alert(
        name="NvLinkRecovering",
        expr=(
            "sum by (node, gpu, UUID) (increase(DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL[1h])) > 0 or "
            "sum by (node, gpu, UUID) (increase(DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS[1h])) > 0"
        ),
        wait="0s",
        severity="warning",
        summary=f"{_GPU} has an NVLink that went down and was trained again.",
        description="Collective operations over this link stall each time.",
        runbook="`nvidia-smi nvlink -e` names the link; run the proof at level L4; reseat the board.",
    ),
)

HEAT: tuple[Alert, ...] = (
    Alert(
        name="Hot",
        expr="max by (node, gpu, UUID) (DCGM_FI_DEV_GPU_TEMP) > 85",
        wait="5m",
        severity="warning",
        summary=f"{_GPU} has {{{{ $value }}}} °C.",
        description="Most data center GPUs slow down from about 87 °C and stop a few degrees above.",
        runbook="Look at fans, air flow and inlet temperature; compare with the GPUs beside it.",
    ),
    Alert(
        name="MemoryHot",
        expr="max by (node, gpu, UUID) (DCGM_FI_DEV_MEMORY_TEMP) > 95",
        wait="5m",
        severity="warning",
        summary=f"The memory of {_GPU} has {{{{ $value }}}} °C.",
        description="HBM slows down from about 95 °C, and its errors grow with temperature.",
        runbook="As for a hot GPU; if the GPU itself is cool, its cooler does not sit right.",
    ),
    Alert(
        name="ThermalThrottle",
        expr="sum by (node, gpu, UUID) (rate(DCGM_FI_DEV_THERMAL_VIOLATION[5m])) > 0",
        wait="10m",
        severity="warning",
        summary=f"{_GPU} is slowed down by its temperature.",
        description="Work on it takes longer, and so does every job that waits for it.",
        runbook="As for a hot GPU.",
    ),
    Alert(
        name="PowerThrottle",
        expr=(
            "max by (node, gpu, UUID) (DCGM_FI_DEV_POWER_USAGE)"
            " > 0.97 * max by (node, gpu, UUID) (DCGM_FI_DEV_POWER_MGMT_LIMIT)"
            " and on (node, gpu, UUID) (max by (node, gpu, UUID) (DCGM_FI_DEV_SM_CLOCK)"
            " < 0.7 * max by (node, gpu, UUID) (max_over_time(DCGM_FI_DEV_SM_CLOCK[1d])))"
        ),
        wait="15m",
        severity="info",
        summary=f"{_GPU} runs at its power limit and far below its clock.",
        description="Expected for dense load on cards with a low limit; else a limit was lowered.",
        runbook="Compare `nvidia-smi -q -d POWER` with the GPUs beside it.",
    ),
)

OPERATION: tuple[Alert, ...] = (
    Alert(
        name="AllocatableLow",
        expr=(
            f"{EXPECTED} unless on (node, resource)"
            f" (kube_node_status_allocatable >= on (node, resource) {EXPECTED})"
        ),
        wait="15m",
        severity="critical",
        summary="{{ $labels.node }} offers less than {{ $value }} {{ $labels.resource }}.",
        description="The configuration says so many. A GPU is unhealthy, the driver is gone, or the node is.",
        runbook=(
            "`kubectl describe node` for what is left; the log of the device plugin on that node names "
            "the GPU and its XID; `nvidia-smi` on the host."
        ),
    ),
    Alert(
        name="ExporterDown",
        expr=(f"max by (node) ({EXPECTED}) unless on (node) max by (node) (DCGM_FI_DEV_GPU_TEMP)"),
        wait="10m",
        severity="critical",
        summary="No GPU of {{ $labels.node }} reports any metric.",
        description="All other alerts about its GPUs are blind now.",
        runbook=(
            "Is there a pod of `nvidia-dcgm-exporter` on the node, and what does it log? If it runs: does a "
            "Prometheus select its ServiceMonitor? `gpu-clusters verify` says which, and why not."
        ),
    ),
    Alert(
        name="OperatorNotReady",
        expr="max(gpu_operator_reconciliation_status) < 1",
        wait="30m",
        severity="warning",
        summary="The GPU operator has not reconciled its ClusterPolicy for half an hour.",
        description="0: operands are not ready, -1: no ClusterPolicy, -2: the operator itself failed.",
        runbook="`kubectl get clusterpolicy -o yaml`: its conditions name the operand, its pods say why.",
    ),
    Alert(
        name="OperatorDown",
        expr="absent(gpu_operator_reconciliation_status) > 0",
        wait="15m",
        severity="warning",
        summary="The GPU operator reports nothing.",
        description="Nodes keep working; new nodes, upgrades and MIG changes do not.",
        runbook="Look at the Deployment `gpu-operator`, and at its ServiceMonitor as for ExporterDown.",
    ),
    Alert(
        name="NodesMissing",
        expr=f"max(gpu_operator_gpu_nodes_total) < count(count by (node) ({EXPECTED}))",
        wait="15m",
        severity="warning",
        summary="The GPU operator sees {{ $value }} nodes with GPUs, fewer than are configured.",
        description="A node is down, or Node Feature Discovery does not label it any more.",
        runbook="`kubectl get nodes -L nvidia.com/gpu.present` and the NFD worker's pod on the missing node.",
    ),
    Alert(
        name="IdleWhileAllocated",
        expr=(
            "max by (node, gpu, UUID, exported_namespace, exported_pod)"
            ' (max_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_pod!=""}[1h])) < 0.01'
        ),
        wait="2h",
        severity="info",
        summary=(
            "{{ $labels.exported_namespace }}/{{ $labels.exported_pod }} holds "
            f"{_GPU} and does not use it."
        ),
        description="No kernel ran on it for hours, and nobody else can have it.",
        runbook="Ask its owner. A quota or a deadline on jobs keeps it from becoming a habit.",
    ),
)

GROUPS: Mapping[str, tuple[Alert, ...]] = {"errors": ERRORS, "heat": HEAT, "operation": OPERATION}


def alerts() -> Iterator[Alert]:
    """All of them."""
    for group in GROUPS.values():
        yield from group


def series_resource(resource: str) -> str:
    """A resource as kube-state-metrics labels it: `nvidia.com/mig-1g.10gb` is `nvidia_com_mig_1g_10gb`."""
    return "".join(letter if letter.isalnum() else "_" for letter in resource)


def groups(expected: Mapping[str, Mapping[str, int]]) -> Sequence[dict[str, Any]]:
    """All rule groups: what is expected, then the alerts.

    Args:
        expected: how many of each resource each node must offer, by node and resource.
    """
    records = [
        {
            "record": EXPECTED,
            "expr": f"vector({count})",
            "labels": {"node": node, "resource": series_resource(resource)},
        }
        for node, resources in sorted(expected.items())
        for resource, count in sorted(resources.items())
    ]
    found = [{"name": f"{RULES_NAME}.expected", "rules": records}] if records else []
    return found + [
        {"name": f"{RULES_NAME}.{name}", "rules": [alert.document() for alert in group]}
        for name, group in GROUPS.items()
    ]
