"""The PCI devices of a board, as `boards.yaml` has them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.hosts.model import HostsError

MIB = 1024 * 1024
GIB = 1024 * MIB
_GPU_BARS = ((0, 16 * MIB), (2, 128 * GIB), (4, 32 * MIB))
_SWITCH_BARS = ((0, 32 * MIB),)


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function. `bars` maps the number of a BAR to its size in bytes."""

    address: str
    vendor: str
    device: str
    class_code: str
    subsystem: tuple[str, str]
    revision: str
    numa_node: int
    iommu_group: int
    driver: str | None
    bars: tuple[tuple[int, int], ...] = ()
    module: int | None = None

    @property
    def is_bridge(self) -> bool:
        """Whether this is a PCI bridge, which VFIO exempts from its group rule."""
        return self.class_code.startswith("0604")


@dataclass(frozen=True, slots=True)
class Board:
    """All devices of a platform that matter, and the partitions that its NVSwitches offer."""

    platform: str
    product: str
    vendor: str
    links_per_gpu: int
    link_rate_mbps: int
    devices: tuple[PciDevice, ...]
    memory_gib: int
    gpu_name: str
    """What `nvidia-smi` calls a GPU of it."""
    gpu_memory_mib: int
    partitions: Mapping[int, tuple[int, ...]]
    """Module numbers by id of the partition, as the board's fabric manager announces them."""

    @property
    def gpus(self) -> dict[int, PciDevice]:
        return {d.module: d for d in self.devices if d.module is not None}

    @property
    def passes_gpus_on(self) -> bool:
        """Whether its GPUs are meant for virtual machines, so that the machine itself has no driver."""
        return any(device.driver == "vfio-pci" for device in self.devices)

    @property
    def runs_the_driver(self) -> bool:
        """Whether its GPUs are meant for NVIDIA's driver on the machine itself."""
        return bool(self.gpus) and not self.passes_gpus_on

    @property
    def has_switches(self) -> bool:
        """Whether its GPUs are connected by NVSwitches, so that they wait for a fabric manager."""
        return any(d.vendor == "10de" and d.class_code == "068000" for d in self.devices)

    @property
    def numa_nodes(self) -> int:
        """How many NUMA nodes its machine has: one for each socket."""
        return len({d.numa_node for d in self.devices}) or 1

    def modules(self, partition_id: int) -> tuple[int, ...]:
        """The modules of a partition; `HostsError` if there is no such one."""
        try:
            return self.partitions[partition_id]
        except KeyError:
            known = ", ".join(map(str, self.partitions)) or "none"
            raise HostsError(
                f"{self.platform} has no partition {partition_id}; there are: {known}"
            ) from None

    def vfio_groups(self, partition_id: int) -> tuple[int, ...]:
        """The IOMMU groups of the GPUs of a partition."""
        return tuple(self.gpus[module].iommu_group for module in self.modules(partition_id))


def _devices(said: Mapping[str, Any]) -> Iterator[PciDevice]:
    gpus, switches = said.get("gpus", {}), said.get("switches", {})
    for bus, (module, group, numa) in gpus.get("at", {}).items():
        yield _nvidia(gpus, bus, "030200", numa, group, _GPU_BARS, module)
    for bus, group in switches.get("at", {}).items():
        yield _nvidia(switches, bus, "068000", switches["numa"], group, _SWITCH_BARS)
    for address, one in said.get("pcie-switch", {}).items():
        bars = ((0, one["bar0-mib"] * MIB),) if "bar0-mib" in one else ()
        ids = ("11f8", one["device"], one["class"], ("11f8", "beef"), "00")
        yield PciDevice(address, *ids, 0, one["group"], one["driver"], bars)


def _nvidia(
    said: Mapping[str, Any],
    bus: str,
    class_code: str,
    numa: int,
    group: int,
    bars: tuple[tuple[int, int], ...],
    module: int | None = None,
) -> PciDevice:
    ids = ("10de", said["device"], class_code, ("10de", said["subsystem"]), "a1")
    address = f"0000:{bus}:00.0"
    return PciDevice(address, *ids, numa, group, said.get("driver"), bars, module)


BOARDS: Mapping[str, Board] = {
    platform: Board(
        platform=platform,
        product=said["product"],
        vendor=said["vendor"],
        links_per_gpu=said.get("links", 0),
        link_rate_mbps=said.get("link-rate-mbps", 0),
        devices=tuple(_devices(said)),
        memory_gib=said.get("memory-gib", 2048),
        gpu_name=said.get("gpu-name", ""),
        gpu_memory_mib=said.get("gpu-memory-mib", 0),
        partitions={n: tuple(modules) for n, modules in said.get("partitions", {}).items()},
    )
    for platform, said in yaml.load(
        Path(__file__).with_name("boards.yaml").read_text(), yaml.CSafeLoader
    ).items()
}


def board(platform: str) -> Board:
    """The board of a platform; `HostsError` names the platforms that can be simulated."""
    try:
        return BOARDS[platform]
    except KeyError:
        raise HostsError(
            f"platform {platform!r} cannot be simulated; choose one of {', '.join(sorted(BOARDS))}"
        ) from None
