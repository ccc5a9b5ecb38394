"""The boot profile that a configuration means: its largest VM, and what the operator states."""

from __future__ import annotations

from gpuclusters.boot.guest_profile import BootProfile, Guest
from gpuclusters.cdi.model import VfioBackend
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.plan import preset, share, table
from gpuclusters.domain.versions import Release, parse_release
from gpuclusters.tenancy.model import MEMORY_GIB_PER_GPU

_MACHINE_MEMORY_GIB = 2048
"""Of a machine whose memory is neither stated nor in its platform's preset."""


def largest_guest(config: CaasConfig) -> Guest:
    """The VM that boots longest: the most GPUs of a board, the most memory of a tenant, the oldest kernel.

    Not the most GPUs of the present cut: another cut would then restart every kubelet and install Kata anew.
    """
    gpus = max(table(config).sizes)
    asked = [share(config, tenant).max_container.memory_gib for tenant in config.tenants]
    return Guest(
        gpus=gpus,
        memory_gib=min(max(asked, default=gpus * MEMORY_GIB_PER_GPU), _machine_memory_gib(config)),
        huge_pages=config.kata.huge_pages,
        # With `auto` a machine may turn out to have only the slower form.
        iommufd=config.device_access.vfio is VfioBackend.IOMMUFD,
        kernel=_oldest_kernel(config),
    )


def boot_profile(config: CaasConfig) -> BootProfile:
    """Every timeout of the cluster: derived, where the configuration does not state it."""
    kata = config.kata
    return BootProfile.of(largest_guest(config)).stated(
        cdi_timeout=kata.cdi_timeout_seconds,
        create_container_timeout=kata.create_container_timeout_seconds,
        dial_timeout=kata.dial_timeout_seconds,
        kubelet_request_timeout=config.kubernetes.kubelet.runtime_request_timeout_seconds,
    )


def _machine_memory_gib(config: CaasConfig) -> int:
    default = preset(config).memory_gib or _MACHINE_MEMORY_GIB
    return max((node.memory_gib or default for node in config.nodes), default=default)


def _oldest_kernel(config: CaasConfig) -> Release | None:
    kernels = [parse_release(node.kernel) for node in config.nodes if node.kernel is not None]
    stated = [kernel for kernel in kernels if kernel is not None]
    return min(stated, default=None)
