"""What is true of NVIDIA's driver on every host, whoever installed it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.core.finding import Finding
from gpuclusters.domain import rke2_matrix
from gpuclusters.domain.gpu_products import Architecture

OPEN_LICENCE = "Dual MIT/GPL"
_KERNEL_LOG = "look at `dmesg | grep -e NVRM -e Xid` on the host"


def gpu_count(found: int, declared: int, *, seen_by: str = "nvidia-smi") -> Iterator[Finding]:
    """Whether the host has as many GPUs as are declared."""
    if found != declared:
        yield Finding(
            "driver.gpu-count",
            f"{seen_by} shows {found} GPUs and {declared} are declared",
            "correct the number in the configuration, or look for a GPU that fell off the bus "
            "(`lspci -d 10de:`)",
        )


def serving(
    gpus: int, shown: int, *, version: str, is_open: bool, volta: bool, smi: int, said: str
) -> Iterator[Finding]:
    """Whether a driver that others installed serves all GPUs; one finding, the deepest cause.

    Args:
        gpus: how many are declared.
        shown: how many `nvidia-smi` shows.
        version: of the kernel module on the disk; empty without one.
        is_open: whether that module is the open one.
        volta: whether there are GPUs of the Volta generation or older.
        smi: exit status of `nvidia-smi`.
        said: what it printed when it failed.
    """
    branch, last = version.partition(".")[0], rke2_matrix.last_branch_for(Architecture.VOLTA)
    if volta and is_open:
        yield Finding(
            "driver.modules-unfit",
            f"the driver's kernel module {version} is the open one ({OPEN_LICENCE}), and a V100 works "
            "with the proprietary one alone",
            "install the proprietary modules (driver.source: host does), then restart it",
        )
    elif volta and branch.isdecimal() and int(branch) > last:
        yield Finding(
            "driver.branch-unfit",
            f"driver {version} does not know its GPUs: {last} is the last branch for V100",
            f"install a driver of branch {last} (driver.source: host does), then restart it",
        )
    elif smi != 0:
        yield Finding(
            "driver.not-serving",
            f"its driver serves no GPU: nvidia-smi ended with {smi}{f' ({said})' if said else ''}",
            f"install a driver (driver.source: host does), or {_KERNEL_LOG}",
        )
    else:
        yield from gpu_count(shown, gpus)
