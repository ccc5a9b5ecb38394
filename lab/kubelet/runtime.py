"""What a pod is run with: shared by all pods of one node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lab.kubelet import programs
from lab.kubelet.addresses import LoopbackAddresses, PodRange
from lab.kubelet.checkpoint import Allocation
from lab.kubelet.device_manager import DeviceManager
from lab.kubelet.folder import NodeFolder
from lab.kubelet.kube import Kube
from lab.kubelet.logs import ContainerLog
from lab.kubelet.machine import Machine
from lab.kubelet.probes import is_supported
from lab.kubelet.programs import Program
from lab.pods import rootless
from lab.pods.rootless import InNode

_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@dataclass(frozen=True, slots=True)
class NodeRuntime:
    kube: Kube
    folder: NodeFolder
    devices: DeviceManager
    loopback: LoopbackAddresses
    range: PodRange
    authority: Path
    image: str
    boot_seconds: float
    machine: Machine | None
    """The simulated host of the same name, if the lab has hosts."""
    process_folder: Path
    """Names the stand-in in the environment of every process."""

    def is_ours(self, image: str) -> bool:
        """Whether containers of this image run as processes."""
        return image == self.image or image.startswith((f"{self.image}:", f"{self.image}@"))

    def program(self, pod: Mapping[str, Any], container: Mapping[str, Any]) -> Program | None:
        """What runs as a process for a container; None if it is only said to run."""
        if self.is_ours(container["image"]):
            return Program()
        return programs.program(pod, container, self.inside)

    @property
    def inside(self) -> InNode | None:
        """What is inside the node, if it is a rootless one."""
        return rootless.read(self.process_folder).get(self.folder.name)

    def runs_for_real(self, pod: Mapping[str, Any]) -> bool:
        """Whether any container of the pod runs as a process."""
        return any(self.program(pod, container) for container in pod["spec"]["containers"])

    def log(self, pod: Mapping[str, Any], container: str) -> ContainerLog:
        return ContainerLog(self.folder.logs(pod["metadata"]["uid"]) / container)


class RunningPod(Protocol):
    @property
    def ended(self) -> bool:
        """Whether it is terminal: none of its containers runs or will run."""

    async def run(self) -> None:
        """Run it until it has ended."""

    async def stop(self, grace_seconds: float) -> None:
        """End it; when this returns nothing of it runs."""

    async def remove(self) -> None:
        """Forget what was made for it."""

    def container_ended(self, container: str) -> bool:
        """Whether the container writes no more."""


def unsupported(pod: Mapping[str, Any], runtime: NodeRuntime) -> str | None:
    """What the pod asks of a real process that the stand-in does not do; None if nothing."""
    spec = pod["spec"]
    if spec.get("initContainers"):
        return "init containers"
    for container in spec["containers"]:
        if runtime.program(pod, container) is None:
            return f"a container of another image ({container['image']}) beside ours"
        for kind in _PROBES:
            if kind in container and not is_supported(container[kind]):
                return f"the {kind} of container {container['name']}"
    return None


def cdi_names(allocations: Sequence[Allocation]) -> str:
    return ", ".join(name for allocation in allocations for name in allocation.cdi)
