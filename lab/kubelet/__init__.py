"""A stand-in for the kubelets of the simulated hosts: one process that plays one kubelet per node.

    start(folder, KubeletSpec(lab, (NodeSpec("hgx-01"),), image="gpu-clusters/caas"))

It speaks the kubelet's real protocols: nodes with heartbeats and status, device plugins (`v1beta1`:
registration, ListAndWatch, preferred allocation, Allocate, checkpoint), PodResources (`v1`), and the
HTTPS log endpoint that the API server asks. It also calls Cilium's policies valid, as its operator would.

Pods whose image is the one named run as processes of this machine, with the service account, volumes,
environment, probes and restarts that their spec asks for, each at a loopback address of its own
(`reachable` gives it for the address that the pod's status says). All other pods are simulated:
admitted as by a kubelet, then said to run; nothing runs.

Beside nodes that have a real kubelet (`lab.nodes`) it plays only what stands outside of their containers:
what kata-deploy does to the host, the virtual machine of a pod with GPUs, and Cilium's word about the node.

What it does not do, so that nobody relies on it:

- No image is pulled, no container is isolated: a process sees the machine's file system. Paths of
  mounts are replaced by folders of the lab where they begin a word of an argument or a variable.
- Limits of CPU and memory, security contexts and init containers of real processes are not obeyed; a
  pod with init containers of our image is refused.
- When it restarts, real processes are started anew (a kubelet would find them running); simulated pods
  and their devices stay.
- Its log endpoint trusts every certificate of the lab's authority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import on_demand

if TYPE_CHECKING:
    from lab.kubelet.addresses import is_process, reachable
    from lab.kubelet.model import KubeletError, KubeletSpec, KubeletStatus
    from lab.kubelet.process import start, status, stop
else:
    __getattr__ = on_demand.names(
        __name__,
        {
            "addresses": "is_process reachable",
            "model": "KubeletError KubeletSpec KubeletStatus",
            "process": "start status stop",
        },
    )

__all__ = [
    "KubeletError",
    "KubeletSpec",
    "KubeletStatus",
    "is_process",
    "reachable",
    "start",
    "status",
    "stop",
]
