"""What is looked at in a cluster before the GPU Operator's release: read once, judged all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.core.finding import Refused
from gpuclusters.domain.custom_resource import Name
from gpuclusters.domain.helm_release import revisions
from gpuclusters.domain.ports import ClusterObjects
from gpuclusters.gpu_operator import checks
from gpuclusters.gpu_operator.checks import Facts, Finding, Plan
from gpuclusters.gpu_operator.objects import (
    CLUSTER_POLICY,
    CRD,
    DAEMON_SET,
    GPU_CLUSTER,
    HELM_CHART,
    NAMESPACE,
    RELEASE,
    SECRET,
)
from gpuclusters.tenancy.objects import NAMESPACE as NAMESPACE_KIND
from gpuclusters.tenancy.objects import NODE


class OperatorPreflightInputs(BaseModel):
    """Inputs of the look."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: Name
    kubeconfig: str = Field(min_length=1, repr=False)
    version: str = ""
    """The release that will be installed; empty where only the chart knows."""
    nodes: tuple[str, ...] = ()
    """Nodes that must get GPUs."""
    namespace: str = NAMESPACE
    release: str = RELEASE
    with_nfd: bool = True
    cdi: bool = True
    tolerations: tuple[dict[str, Any], ...] = ()
    """Of the operands, as in the chart's values."""
    nfd_tolerations: tuple[dict[str, Any], ...] = ()
    """Of the workers of node feature discovery."""
    values_digest: str = ""
    """Of the chart's values: another upgrade is another look."""

    @property
    def natural_id(self) -> str:
        """`cluster/gpu-operator-preflight`."""
        return f"{self.cluster}/gpu-operator-preflight"

    @property
    def plan(self) -> Plan:
        """What is going to be installed."""
        return Plan(
            version=self.version,
            nodes=self.nodes,
            namespace=self.namespace,
            release=self.release,
            with_nfd=self.with_nfd,
            cdi=self.cdi,
            tolerations=self.tolerations,
            nfd_tolerations=self.nfd_tolerations,
        )


class OperatorPreflightError(Refused):
    """The operator cannot be installed as declared; says all that is in the way."""

    error_id = "gpu.operator-blocked"

    def __init__(self, target: str, found: Sequence[Finding]) -> None:
        super().__init__(target, ())
        self.found = tuple(found)

    def __str__(self) -> str:
        noun = "thing is" if len(self.found) == 1 else "things are"
        head = f"{self.target}: {len(self.found)} {noun} in the way of the GPU Operator; nothing was changed"
        return "\n".join([head, *(finding.text for finding in self.found)])


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """What was found."""

    findings: tuple[Finding, ...]
    installed: str
    """Version of the operator that is there; empty for none."""

    def outputs(self) -> dict[str, Any]:
        """What the resource tells."""
        return {"findings": [f.line for f in self.findings], "installed": self.installed}


def look(inputs: OperatorPreflightInputs, cluster: ClusterObjects) -> PreflightReport:
    """Read and judge; changes nothing."""
    facts = read(inputs.plan, cluster)
    return PreflightReport(checks.judge(facts, inputs.plan), facts.installed)


def read(plan: Plan, cluster: ClusterObjects) -> Facts:
    """The facts that the checks are about."""
    return Facts(
        revisions=tuple(revisions(cluster.list(SECRET, plan.namespace), plan.release)),
        namespace=cluster.get(NAMESPACE_KIND, plan.namespace),
        nodes={str(node["metadata"]["name"]): node for node in cluster.list(NODE)},
        daemon_sets=tuple(cluster.list(DAEMON_SET)),
        policies=tuple(cluster.list(CLUSTER_POLICY)),
        gpu_clusters=tuple(cluster.list(GPU_CLUSTER)),
        helm_charts=tuple(cluster.list(HELM_CHART)),
        definitions=tuple(
            crd for name in checks.DEFINITIONS if (crd := cluster.get(CRD, name)) is not None
        ),
    )


def require(inputs: OperatorPreflightInputs, cluster: ClusterObjects) -> PreflightReport:
    """The look, if nothing is in the way.

    Raises:
        OperatorPreflightError: with every finding, what was read, what to do, and the source of the rule.
    """
    found = look(inputs, cluster)
    if found.findings:
        raise OperatorPreflightError(cluster.target, found.findings)
    return found


def tolerations(values: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Tolerations of the operands and of the workers of NFD in the chart's values, with its defaults."""
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    control = {
        "key": "node-role.kubernetes.io/control-plane",
        "operator": "Equal",
        "value": "",
        "effect": "NoSchedule",
    }
    operands = (values.get("daemonsets") or {}).get("tolerations")
    worker = ((values.get("node-feature-discovery") or {}).get("worker") or {}).get("tolerations")
    return (
        [gpu] if operands is None else list(operands),
        [control, gpu] if worker is None else list(worker),
    )
