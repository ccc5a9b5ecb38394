"""What one look of the stand-in is about, and what it remembers between looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.files import read_json, write_json
from lab.gpu_operator.faults import Fault
from lab.gpu_operator.operands import DRIVER, Operand, image, wanted
from lab.hosts import GpuState

Object = Mapping[str, Any]


@dataclass(slots=True)
class Memory:
    """What hosts remember of operands; kept in a file, so that a restart of this process changes nothing."""

    file: Path
    toolkits: dict[str, bool] = field(default_factory=dict)
    """Nodes on which the toolkit is installed, and whether its runtime is the default there."""
    drivers: dict[str, str] = field(default_factory=dict)
    """Image of the driver that a container has loaded, by node."""
    layouts: dict[str, str] = field(default_factory=dict)
    """MIG layout that was made last, by node."""

    @classmethod
    def of(cls, file: Path) -> Memory:
        known = read_json(file) or {}
        return cls(
            file,
            dict(known.get("toolkits", {})),
            dict(known.get("drivers", {})),
            dict(known.get("layouts", {})),
        )

    def save(self) -> None:
        write_json(
            self.file,
            {
                "toolkits": self.toolkits,
                "drivers": self.drivers,
                "layouts": self.layouts,
            },
        )

    def forget(self) -> None:
        """The operator is gone. Installed toolkits stay on their hosts, drivers go with their containers."""
        if self.drivers:
            self.drivers = {}
            self.save()


@dataclass(frozen=True, slots=True)
class View:
    """The cluster and the machines at one look."""

    namespace: str
    policy: Object
    nodes: Mapping[str, Object]
    """Of the machines that are nodes."""
    machines: Mapping[str, GpuState]
    pods: Sequence[Object]
    """Of operands."""
    configs: Mapping[str, Mapping[str, str]]
    """Data of the ConfigMaps that operands read, by name."""
    faults: Sequence[Fault]
    memory: Memory

    @property
    def spec(self) -> Object:
        found: Object = self.policy.get("spec") or {}
        return found

    @property
    def operands(self) -> tuple[Operand, ...]:
        return wanted(self.policy)

    @property
    def gpu_nodes(self) -> tuple[str, ...]:
        """Nodes that discovery has found GPUs on."""
        return tuple(name for name in sorted(self.nodes) if is_gpu_node(self.nodes[name]))

    def state(self, node: str) -> GpuState:
        """The GPUs of a node; a driver that a container brought makes all of them usable."""
        found = self.machines[node]
        if node in self.memory.drivers and found.driver_version is None:
            return replace(found, usable=found.count)
        return found

    def has_host_driver(self, node: str) -> bool:
        return self.machines[node].driver_version is not None

    def driver_image(self) -> str:
        return image(DRIVER, self.policy)

    def pod(self, operand: Operand, node: str) -> Object | None:
        """An operand's pod on a node; None if there is none, or it is being deleted."""
        for pod in self.pods:
            metadata = pod["metadata"]
            same = (metadata.get("labels") or {}).get("app") == operand.name
            if same and pod["spec"].get("nodeName") == node and "deletionTimestamp" not in metadata:
                return pod
        return None

    def runs(self, operand: Operand, node: str) -> bool:
        pod = self.pod(operand, node)
        return pod is not None and is_ready(pod)


def labels(node: Object) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def is_gpu_node(node: Object) -> bool:
    """As the operator's `gpuNodeLabels` say."""
    return labels(node).get("feature.node.kubernetes.io/pci-10de.present") == "true"


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
