"""What is changed in the configuration of a Kata shim: a drop-in in TOML, after Kata's own files.

Given to the chart as `shims.<shim>.dropIn`, it becomes `config.d/50-user-overrides.toml` beside the shim's
configuration. A drop-in replaces whole keys, so `kernel_params` repeats what Kata's build puts there. The two
runtimes keep the same settings in different tables and units.

Source: Kata Containers 4.1.0, `configuration-qemu-nvidia-gpu.toml.in` of both runtimes, `KERNELPARAMS_NV` in
their Makefiles, kata-deploy's `install.rs`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuclusters.boot.guest_profile import GUEST_BASE_MIB, BootProfile
from gpuclusters.domain.kata import Installation, Shim

KUBELET_ROOT: Final = "/var/lib/kubelet"
KUBELET_ROOTS: Final[Mapping[str, str]] = {
    "k0s": "/var/lib/k0s/kubelet",
    "microk8s": "/var/snap/microk8s/common/var/lib/kubelet",
}
"""Of distributions whose kubelet lives elsewhere; k8s, k3s and rke2 use the usual one."""

_KERNEL_PARAMETERS: Final = ("cgroup_no_v1=all", "pci=realloc", "pci=nocrs", "pci=assign-busses")
_CONFIDENTIAL_PARAMETERS: Final = (*_KERNEL_PARAMETERS, "nvrc.smi.srs=1")
_HEADER: Final = "# Managed by gpu-clusters: timeouts and sizes of VMs with GPUs.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimConfiguration:
    """What a shim is told beside its own configuration."""

    shim: Shim
    profile: BootProfile
    installation: Installation = field(default_factory=Installation)
    huge_pages: bool = False
    kubelet_root: str = KUBELET_ROOT

    def kernel_parameters(self) -> Sequence[str]:
        """The guest's whole command line, as far as it is configured."""
        own = _CONFIDENTIAL_PARAMETERS if self.shim.confidential else _KERNEL_PARAMETERS
        return (*own, f"agent.cdi_timeout={self.profile.cdi_timeout}")

    def tables(self) -> Mapping[str, Mapping[str, Any]]:
        """Keys by table."""
        hypervisor: dict[str, Any] = {
            # Large BARs cannot be plugged into a running VM.
            "cold_plug_vfio": "root-port",
            "enable_annotations": [],
            "default_memory": GUEST_BASE_MIB,
            "enable_hugepages": self.huge_pages,
            "kernel_params": " ".join(self.kernel_parameters()),
        }
        runtime: dict[str, Any] = {
            "sandbox_cgroup_only": True,
            "static_sandbox_resource_mgmt": True,
        }
        if self.kubelet_root != KUBELET_ROOT:
            runtime["kubelet_root_dir"] = self.kubelet_root
            runtime["pod_resource_api_sock"] = f"{self.kubelet_root}/pod-resources/kubelet.sock"
        create = self.profile.create_container_timeout
        if self.shim.rust:
            agent = {
                "create_container_timeout": create,
                "reconnect_timeout_ms": self.profile.dial_timeout * 1000,
            }
        else:
            hypervisor["hot_plug_vfio"] = "no-port"
            agent = {"dial_timeout": self.profile.dial_timeout}
            runtime["create_container_timeout"] = create
        return {"hypervisor.qemu": hypervisor, "agent.kata": agent, "runtime": runtime}

    def toml(self) -> str:
        """The drop-in; the same for the same settings."""
        parts = [_HEADER]
        for table, keys in self.tables().items():
            lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in sorted(keys.items()))
            parts.append(f"[{table}]\n{lines}")
        return "\n".join(parts)

    @property
    def folder(self) -> str:
        """Where kata-deploy puts the shim's configuration on a machine."""
        runtime = "/runtime-rs" if self.shim.rust else ""
        defaults = f"{self.installation.prefix}/share/defaults/kata-containers"
        return f"{defaults}{runtime}/runtimes/{self.shim.value}"

    @property
    def drop_in_path(self) -> str:
        """Where the drop-in is on a machine."""
        return f"{self.folder}/config.d/50-user-overrides.toml"
