"""Kata Containers 4.1: the shims that pass GPUs through, and what an installation cannot change in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

OVERHEAD_MEMORY_MIB = 10240
OVERHEAD_CPU_MILLICORES = 1000


class Shim(StrEnum):
    """A containerd shim that starts VMs with GPUs."""

    GO = "qemu-nvidia-gpu"
    GO_SNP = "qemu-nvidia-gpu-snp"
    GO_TDX = "qemu-nvidia-gpu-tdx"
    RUST = "qemu-nvidia-gpu-runtime-rs"
    RUST_SNP = "qemu-nvidia-gpu-snp-runtime-rs"
    RUST_TDX = "qemu-nvidia-gpu-tdx-runtime-rs"

    @property
    def runtime_class(self) -> str:
        """Name of the RuntimeClass and of containerd's handler."""
        return f"kata-{self.value}"

    @property
    def confidential(self) -> bool:
        """Whether VMs run encrypted, which needs GPUs in confidential-computing mode."""
        return self in {Shim.GO_SNP, Shim.GO_TDX, Shim.RUST_SNP, Shim.RUST_TDX}

    @property
    def rust(self) -> bool:
        """Whether it is of the runtime written in Rust, whose configuration has other keys."""
        return self.value.endswith("-runtime-rs")

    @property
    def shares_files(self) -> bool:
        """Whether what the kubelet mounts stays live in the VM instead of being copied at its start."""
        return self is Shim.GO

    @property
    def node_selector(self) -> dict[str, str]:
        """Labels of nodes that can run it, as the chart's RuntimeClass has them."""
        selector = {"nvidia.com/cc.ready.state": "true" if self.confidential else "false"}
        if self in {Shim.GO_SNP, Shim.RUST_SNP}:
            selector["amd.feature.node.kubernetes.io/snp"] = "true"
        if self in {Shim.GO_TDX, Shim.RUST_TDX}:
            selector["intel.feature.node.kubernetes.io/tdx"] = "true"
        return selector


KATA_LABEL = "katacontainers.io/kata-runtime"
"""On a node: kata-deploy has installed Kata on it ("true")."""
_INSTANCE_LABEL = "kata-deploy.katacontainers.io"
"""On a node: which installation that was; all of them share `KATA_LABEL`."""
WORKLOAD_LABEL = "nvidia.com/gpu.workload.config"
"""On a node: what its GPUs are for; the GPU Operator and our installer go by it."""
PASSTHROUGH = "vm-passthrough"


class DeploymentMode(StrEnum):
    """How `kata-deploy` puts Kata on the nodes."""

    DAEMONSET = "daemonset"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Installation:
    """What the chart records at installation and refuses to change afterwards."""

    deployment_mode: DeploymentMode = DeploymentMode.DAEMONSET
    multi_install_suffix: str = ""

    @property
    def prefix(self) -> str:
        """Where kata-deploy puts Kata on a machine."""
        return (
            f"/opt/kata-{self.multi_install_suffix}" if self.multi_install_suffix else "/opt/kata"
        )

    def handler(self, shim: Shim) -> str:
        """What containerd and the RuntimeClass call the shim."""
        suffix = f"-{self.multi_install_suffix}" if self.multi_install_suffix else ""
        return f"{shim.runtime_class}{suffix}"

    @property
    def labels(self) -> dict[str, str]:
        """What kata-deploy sets on a node at its end (chart 4.1.0, `kata-deploy.instanceMarkerLabel`)."""
        instance = f"{_INSTANCE_LABEL}/{self.multi_install_suffix or 'default'}"
        return {KATA_LABEL: "true", instance: "true"}

    def node_selector(self, shim: Shim) -> dict[str, str]:
        """Labels of nodes on which a pod with this shim can start, as the chart's RuntimeClass has them."""
        return {**shim.node_selector, **self.labels}

    @property
    def containerd_drop_in(self) -> str:
        """Where kata-deploy tells a containerd 2.2 or newer of its handlers, on plain Kubernetes."""
        suffix = f"-{self.multi_install_suffix}" if self.multi_install_suffix else ""
        return f"/etc/containerd/conf.d/kata-deploy{suffix}.toml"


GIB = 1024  # in MiB


def guests_mib(partitions: Sequence[int], guest_memory_mib: int, overhead_mib: int) -> int:
    """Memory of one guest in every partition, beside it what Kata itself takes."""
    return len(partitions) * (guest_memory_mib + overhead_mib)
