"""A stand-in for the GPU Operator and its operands: one process that plays their states in the real cluster.

    start(folder, OperatorSpec(control_plane=lab, hosts=lab / "hosts"), print)

The lab's chart `gpu-operator` puts a ClusterPolicy and the operator's Deployment into the cluster by Helm;
this process does what the operator would do with them, for the nodes of the simulated hosts: labels of node
feature discovery, labels of the operator, the DaemonSets of the operands, the conditions of the policy, the
toolkit's restart of RKE2, driver updates node by node, MIG layouts, and a device plugin that speaks the
kubelet's real protocol. What a host has (GPUs, driver, MIG) is what `lab.hosts` says of that machine.

Faults are injected by name while it runs (`faults`). What it does not do, so that nobody relies on it:

- No operand runs anything: their pods are said to run by this process, and by no kubelet. On real nodes they
  are containers of a stand-in image that do as this process says (`real_nodes`), and statuses are the
  kubelet's; the toolkit's step is done by NVIDIA's own programs where they can be built (`toolkit`).
- A driver of the operator's container is known to this process alone; `nvidia-smi` on the host is the host's.
- No NVIDIADriver, no GPUCluster, no sandbox workloads: the chart refuses them by name.
- Times are fractions of a second where the real ones are minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import on_demand

if TYPE_CHECKING:
    from lab.gpu_operator.model import OperatorError, OperatorSpec
    from lab.gpu_operator.process import start, status, stop
else:
    __getattr__ = on_demand.names(
        __name__,
        {
            "model": "OperatorError OperatorSpec",
            "process": "start status stop",
        },
    )

__all__ = ["OperatorError", "OperatorSpec", "start", "status", "stop"]
