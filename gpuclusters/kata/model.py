"""Kata Containers 4.1: the shims that pass GPUs through, and the values of the chart `kata-deploy`.

Helm ignores keys that the chart does not read; what is not in the table of chart 4.1.0 is refused.

`shims.<shim>.dropIn` becomes `config.d/50-user-overrides.toml` beside the shim's configuration. A drop-in
replaces whole keys, so `kernel_params` repeats what Kata's build puts there. Source: Kata Containers 4.1.0,
`configuration-qemu-nvidia-gpu.toml.in` of both runtimes, `KERNELPARAMS_NV` in their Makefiles, `install.rs`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, Final

from gpuclusters.boot.guest_profile import GUEST_BASE_MIB, BootProfile
from gpuclusters.compat import dated_table
from gpuclusters.core import scripts

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
    def _suffix(self) -> str:
        return f"-{self.multi_install_suffix}" if self.multi_install_suffix else ""

    @property
    def prefix(self) -> str:
        """Where kata-deploy puts Kata on a machine."""
        return f"/opt/kata{self._suffix}"

    def handler(self, shim: Shim) -> str:
        """What containerd and the RuntimeClass call the shim."""
        return f"{shim.runtime_class}{self._suffix}"

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
        return f"/etc/containerd/conf.d/kata-deploy{self._suffix}.toml"


GIB = 1024  # in MiB


def guests_mib(partitions: Sequence[int], guest_memory_mib: int, overhead_mib: int) -> int:
    """Memory of one guest in every partition, beside it what Kata itself takes."""
    return len(partitions) * (guest_memory_mib + overhead_mib)


REPOSITORY: Final = "oci://ghcr.io/kata-containers/kata-deploy-charts/kata-deploy"
RELEASE: Final = "kata-deploy"
NAMESPACE: Final = "kata-system"
VERSION: Final = "4.1.0"
"""The release whose tree of values this is."""

Tree = Mapping[str, "Tree | None"]
"""Known keys; None where the chart takes any value, mappings included."""


@cache
def known_values() -> Tree:
    """Every key that the chart reads."""
    table = dated_table.document("kata_chart")
    tree: Tree = table["values"]
    shims = {"disableAll": None, **dict.fromkeys(table["shims"], table["shim"])}
    return {**tree, "shims": shims}


_CONTAINERDS: Final = "overlayfs"
_CONFIDENTIAL_SNAPSHOTTER: Final = "nydus"

IMMUTABLE: Final = ("deploymentMode", "env.multiInstallSuffix")
"""Values that the chart refuses to change after the old pods are gone: the release is made anew."""

OWNED: Final[Mapping[str, str]] = dated_table.document("kata_chart")["owned"]
"""Keys that follow from the configuration and are not to be given beside it, and what to write instead."""


def unknown_keys(
    values: Mapping[str, Any], tree: Tree | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """All keys that the chart does not read, in the order in which they stand; and what it reads there."""
    tree = known_values() if tree is None else tree
    for key, value in values.items():
        here = (*path, str(key))
        if key not in tree:
            yield here, sorted(tree)
        elif (below := tree[key]) is not None and isinstance(value, Mapping):
            yield from unknown_keys(value, below, here)


def chart_values(
    *,
    shim: Shim,
    installation: Installation,
    distribution: str,
    drop_in: str,
    snapshotter: str | None,
    node_selector: Mapping[str, str],
    at_once: int = 1,
    node_feature_discovery: bool = False,
) -> dict[str, Any]:
    """The values of a release: one shim and nothing else (the chart's own default installs all).

    Without a snapshotter it is nydus for confidential shims, whose guests pull their images themselves, and
    containerd's overlayfs for the others. `at_once`: how many machines an upgrade is at work on.
    """
    chosen = snapshotter or (_CONFIDENTIAL_SNAPSHOTTER if shim.confidential else _CONTAINERDS)
    special = "" if chosen == _CONTAINERDS else chosen
    words = {
        "mode": installation.deployment_mode.value,
        "suffix": installation.multi_install_suffix,
        "distribution": distribution,
        "drop_in": drop_in,
        "shim": shim.value,
        "snapshotter": special,
        "snapshotters": [special] if special else [],
        # Layers that are merged are for the Rust runtime alone.
        "merge_mode": "unmerged" if special == "erofs" and not shim.rust else None,
        "node_selector": dict(node_selector),
        "at_once": at_once,
        "node_feature_discovery": node_feature_discovery,
    }
    return dict(scripts.manifest("kata/values.yaml", words))


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
        elsewhere = self.kubelet_root if self.kubelet_root != KUBELET_ROOT else None
        words = {
            "memory": GUEST_BASE_MIB,
            "huge_pages": self.huge_pages,
            "kernel_params": " ".join(self.kernel_parameters()),
            "create": self.profile.create_container_timeout,
            "dial": self.profile.dial_timeout,
            "reconnect_ms": self.profile.dial_timeout * 1000,
            "kubelet_root": elsewhere,
            "kubelet_socket": elsewhere and f"{elsewhere}/pod-resources/kubelet.sock",
        }
        return dict(scripts.manifest("kata/shim.yaml", words, "rust" if self.shim.rust else "go"))

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
