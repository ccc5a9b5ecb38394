"""Simulated GPU machines, reached over real SSH, each with a file system and commands of its own.

    endpoints = start(folder, [HostSpec("hgx-01"), HostSpec("hgx-02")])

One server process per folder listens on one loopback port per host. A command that comes in runs in
the machine's own shell and coreutils, in namespaces of its own where `/` is the host's folder
(`view.py`); what exists only on such a machine (`fmpm`, `systemctl`, `lspci`, …) is answered by
stand-ins (`registry.py` lists them) that keep state. Beside each host a management controller answers Redfish
over HTTPS (`bmc.py`), and its GPUs remember what a tenant left on them (`hardware/tenant.py`). Faults are
injected by name while it runs (`faults`), and what happened can be read afterwards (`journal`).

Platforms `plain-gpu-…` run NVIDIA's driver themselves: packages, modules, `nvidia-smi` and the fabric manager
follow each other as on such a machine, and `gpu_state` says what a cluster would find.

On such a machine an account can have rootless Docker with GPUs: subordinate ids, its own systemd, delegation,
CDI specifications and containers follow each other too (`usernetes/rootless.py` says what its daemon sees).

What it does not do, so that nobody relies on it:

- Of what is written to /sys only drivers (`bind`, `unbind`, `new_id`, `drivers_probe`, `driver_override`) and
  huge pages take effect, a moment later than on a real machine (`writes.py`). No GPU is reset by it
  (`nvidia_gpu_tools.py` resets them).
- A reboot takes a third of a second, and starts units with a file of their own for real; those that packages
  bring along (containerd, kubelet, libvirtd) are stand-ins without a process.
- A host whose folder has `machine.json` is one machine with a real node (`lab.nodes`): it answers at the
  node's address, its containerd and kubelet are the node's, and it goes down and comes up with it.
- The network is the machine's, or that of the real node which is one machine with the host
  (`rke2/real_machine.py`); a command can reach whatever that can.
- Background processes end with the command that started them, and a command ends 2 s after its
  connection broke; on a real host both go on.
- Without root on the machine (user namespaces only) the operator is the host's root, so a forgotten
  `sudo` goes unnoticed, and /dev/vfio holds plain files.
- No container runs: `docker run` answers what a container with these devices would, and compose is another's.
  systemd of an account runs only while it lingers; a login does not start it.
- Terminals are refused (`ssh -T` works), and so is every kind of forwarding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import on_demand

if TYPE_CHECKING:
    from lab.hosts.hardware.host_gpus import GpuState, gpu_state, set_mig
    from lab.hosts.model import BmcEndpoint, HostEndpoint, HostsError, HostSpec, ServerStatus
    from lab.hosts.process import reinstall, start, status, stop
    from lab.hosts.usernetes.usernetes_cluster import NodeState, usernetes_node
else:
    __getattr__ = on_demand.names(
        __name__,
        {
            "hardware.host_gpus": "GpuState gpu_state set_mig",
            "model": "BmcEndpoint HostEndpoint HostsError HostSpec ServerStatus",
            "process": "reinstall start status stop",
            "usernetes.usernetes_cluster": "NodeState usernetes_node",
        },
    )

__all__ = [
    "BmcEndpoint",
    "GpuState",
    "HostEndpoint",
    "HostSpec",
    "HostsError",
    "NodeState",
    "ServerStatus",
    "gpu_state",
    "reinstall",
    "set_mig",
    "start",
    "status",
    "stop",
    "usernetes_node",
]
