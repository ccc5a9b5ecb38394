"""Why a container with GPUs does not start, or finds no GPU inside: what is said, the cause, what to do.

Two readers of one table: events of pods, and the last words of containers that ended. What is said comes from
kubelet, containerd, Kata's shim and agent, and from CUDA and NCCL in the guest; none of them names the cause.

Sources: Kata Containers 4.1.0 (shim and agent; issues #8847, #10891, #12703, #13270), NVIDIA's
sandbox-device-plugin, the CDI library, Fabric Manager User Guide (error 802), KubeSwift (error 3), NCCL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trouble:
    """One cause, and the way out."""

    name: str
    says: str
    """A pattern that finds it in what is said."""
    cause: str
    remedy: str


EVENTS: tuple[Trouble, ...] = (
    Trouble(
        "boot-too-slow",
        r"CreateContainer\w* .*(context deadline exceeded|DeadlineExceeded)|"
        r"(context deadline exceeded|DeadlineExceeded).*CreateContainer|"
        r"[Ff]ailed to create (pod sandbox|containerd task).*(context deadline exceeded|timed out)",
        "the VM did not come up in the time that kubelet or Kata gives it",
        "compare runtimeRequestTimeout of the kubelet with the table of docs/kata.md for this many GPUs, and "
        "look at kernel (6.12 or newer) and QEMU (9.2 or newer) of the machine",
    ),
    Trouble(
        "cdi-device-unknown",
        r"unresolvable CDI devices",
        "the runtime finds no CDI device of that name: the spec is missing, or device plugin and spec name "
        "it differently",
        "`cat /etc/cdi/*` on the machine, then `gpu-clusters up --refresh`: kind and resource name are equal",
    ),
    Trouble(
        "cdi-timeout-in-guest",
        r"(cdi|CDI)[^;]*(timeout|timed out|did not appear|after \d+ attempts)",
        "the guest's driver was not ready within agent.cdi_timeout",
        "raise kata.cdi-timeout-seconds; 100 s are too few for eight GPUs",
    ),
    Trouble(
        "pod-resources-off",
        r"PodResources API Get method disabled",
        "the kubelet does not tell Kata which GPUs a pod has: its gate KubeletPodResourcesGet is off",
        "use Kubernetes 1.34 or newer, or switch the gate on",
    ),
    Trouble(
        "annotation-refused",
        r"annotation \S+ is not enabled",
        "the pod carries an annotation for the hypervisor that Kata's configuration does not allow",
        "take the annotation io.katacontainers.* out of the pod; sizes and timeouts belong into the "
        "configuration",
    ),
    Trouble(
        "no-node-for-runtime-class",
        r"0/\d+ nodes are available.*(didn't match (Pod's )?node (affinity/)?selector|node selector)",
        "no node has the labels that the RuntimeClass asks for",
        "`gpu-clusters doctor` names the nodes that lack them; a confidential-computing state of `on` is the "
        "usual reason (ccManager.defaultMode)",
    ),
    Trouble(
        "no-gpu-left",
        r"0/\d+ nodes are available.*Insufficient (nvidia\.com/\S+)",
        "no node offers as many GPUs as the pod asks for",
        "wait, or look at `kubectl get gpuleases`: GPUs under quarantine are not offered",
    ),
    Trouble(
        "group-not-viable",
        r"group \d+ is not viable|vfio.*(Operation not permitted|Device or resource busy)",
        "a function of the GPU's IOMMU group is on another driver, or another VM has it",
        "`gpu-clusters doctor` names the function and its driver; `up` binds it again",
    ),
)
"""What events of a pod say."""

GUEST: tuple[Trouble, ...] = (
    Trouble(
        "fabric-not-ready",
        r"(cuInit|CUDA|cuda)[^\n]*\b802\b|system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        "CUDA waits for the fabric: the partition of these GPUs was not active when the VM started, or "
        "fabric manager and guest driver are of different versions",
        "`fmpm -l` on the machine, compare the versions, then start the container again: activation after "
        "the start is not seen",
    ),
    Trouble(
        "no-device-initialized",
        r"\bcuInit\b[^\n]*\b3\b|CUDA_ERROR_NOT_INITIALIZED|initialization error",
        "the guest sees the GPUs in a topology that the driver refuses: they have to sit behind root ports",
        "leave cold_plug_vfio at root-port; `gpu-clusters up` writes it",
    ),
    Trouble(
        "fabric-in-progress",
        r"Fabric\s+State\s*:\s*In Progress|fabric state[^\n]*in progress",
        "the GPUs were not told their fabric: partition not active, or not reset after the mode was set",
        "end the container; the lease resets the GPUs and activates the partition for the next one",
    ),
    Trouble(
        "no-nvlink",
        r"NCCL[^\n]*(via (SHM|NET)|P2P is disabled)|peer access is not supported",
        "the GPUs talk over the host instead of NVLink: they are not the ones of the active partition",
        "compare modules and PCI addresses (`gpu-clusters doctor`, finding module-map)",
    ),
)
"""What a program in the guest says."""


def of_event(text: str) -> Trouble | None:
    """The cause behind the words of an event; None if they are not known."""
    return _first(EVENTS, text)


def of_guest(text: str) -> Trouble | None:
    """The cause behind what a program said before it ended; None if it is not known."""
    return _first(GUEST, text)


def _first(table: tuple[Trouble, ...], text: str) -> Trouble | None:
    return next((trouble for trouble in table if re.search(trouble.says, text)), None)
