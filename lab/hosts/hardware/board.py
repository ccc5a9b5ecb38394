"""The PCI devices of an HGX board, as data: addresses, module numbers, IOMMU groups.

Source of the H100 example (module number to order on the bus): NVIDIA's HGX Shared NVSwitch
passthrough guide WP-12736-002. A module number is the slot on the baseboard, not the order on the
bus, which is why the two are kept apart here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.hosts.model import HostsError

MIB = 1024 * 1024
GIB = 1024 * MIB


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
    memory_gib: int = 2048
    gpu_name: str = "NVIDIA H100 80GB HBM3"
    """What `nvidia-smi` calls a GPU of it."""
    gpu_memory_mib: int = 81559
    partitions: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
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


_HGX_H100_PARTITIONS: Mapping[int, tuple[int, ...]] = {
    0: (1, 2, 3, 4, 5, 6, 7, 8),
    1: (1, 2, 3, 4),
    2: (5, 6, 7, 8),
    3: (1, 3),
    4: (2, 4),
    5: (5, 7),
    6: (6, 8),
    **{number + 6: (number,) for number in range(1, 9)},
}
"""Fabric Manager User Guide, "Shared NVSwitch": the default partitions of HGX H100."""
_GPU_BUSES = ("0f", "10", "41", "44", "86", "87", "b8", "bb")
_BUS_INDEX_BY_MODULE = {1: 4, 2: 6, 3: 5, 4: 7, 5: 0, 6: 2, 7: 1, 8: 3}
_SWITCH_BUSES = ("05", "06", "07", "08")


def _gpu(index: int, bus: str) -> PciDevice:
    module = next(m for m, i in _BUS_INDEX_BY_MODULE.items() if i == index)
    return PciDevice(
        address=f"0000:{bus}:00.0",
        vendor="10de",
        device="2330",
        class_code="030200",
        subsystem=("10de", "16c1"),
        revision="a1",
        numa_node=0 if index < len(_GPU_BUSES) // 2 else 1,
        iommu_group=(27, 28, 49, 52, 91, 92, 112, 115)[index],
        driver="vfio-pci",
        bars=((0, 16 * MIB), (2, 128 * GIB), (4, 32 * MIB)),
        module=module,
    )


def _switch(bus: str, group: int) -> PciDevice:
    return PciDevice(
        address=f"0000:{bus}:00.0",
        vendor="10de",
        device="22a3",
        class_code="068000",
        subsystem=("10de", "1796"),
        revision="a1",
        numa_node=0,
        iommu_group=group,
        driver="vfio-pci",
        bars=((0, 32 * MIB),),
    )


def _bridge(address: str, group: int) -> PciDevice:
    return PciDevice(
        address=address,
        vendor="11f8",
        device="4000",
        class_code="060400",
        subsystem=("11f8", "beef"),
        revision="00",
        numa_node=0,
        iommu_group=group,
        driver="pcieport",
    )


def _hgx_h100(*, shared_group: int | None) -> tuple[PciDevice, ...]:
    """The devices of an H100 board; on Supermicro all switches share one IOMMU group.

    There the group holds a management function of the PCIe switch (11f8:4128) as well, and every
    endpoint of a group has to be on vfio-pci before any can be passed through.
    """
    gpus = tuple(_gpu(index, bus) for index, bus in enumerate(_GPU_BUSES))
    if shared_group is None:
        return gpus + tuple(_switch(bus, 14 + n) for n, bus in enumerate(_SWITCH_BUSES))
    management = PciDevice(
        address="0000:03:00.1",
        vendor="11f8",
        device="4128",
        class_code="058000",
        subsystem=("11f8", "beef"),
        revision="00",
        numa_node=0,
        iommu_group=shared_group,
        driver="vfio-pci",
        bars=((0, 4 * MIB),),
    )
    switches = tuple(_switch(bus, shared_group) for bus in _SWITCH_BUSES)
    return (*gpus, *switches, management, _bridge("0000:03:00.0", shared_group))


def _bare_metal(
    buses: tuple[str, ...], device: str, subsystem: str, switch_buses: tuple[str, ...] = ()
) -> tuple[PciDevice, ...]:
    """GPUs, and switches, of a machine that runs the driver itself; module numbers follow the bus."""
    gpus = tuple(
        PciDevice(
            address=f"0000:{bus}:00.0",
            vendor="10de",
            device=device,
            class_code="030200",
            subsystem=("10de", subsystem),
            revision="a1",
            numa_node=0 if index < len(buses) // 2 else 1,
            iommu_group=40 + index,
            driver=None,
            bars=((0, 16 * MIB), (2, 128 * GIB), (4, 32 * MIB)),
            module=index + 1,
        )
        for index, bus in enumerate(buses)
    )
    switches = tuple(
        PciDevice(
            address=f"0000:{bus}:00.0",
            vendor="10de",
            device="1af1",
            class_code="068000",
            subsystem=("10de", "14d2"),
            revision="a1",
            numa_node=1,
            iommu_group=60 + index,
            driver=None,
            bars=((0, 32 * MIB),),
        )
        for index, bus in enumerate(switch_buses)
    )
    return (*gpus, *switches)


BOARDS: Mapping[str, Board] = {
    "supermicro-hgx-h100": Board(
        platform="supermicro-hgx-h100",
        product="SYS-821GE-TNHR",
        vendor="Supermicro",
        links_per_gpu=18,
        link_rate_mbps=26562,
        partitions=_HGX_H100_PARTITIONS,
        devices=_hgx_h100(shared_group=14),
    ),
    # A machine without GPUs, such as a server of a control plane.
    "plain-server": Board(
        platform="plain-server",
        product="SYS-111C-NR",
        vendor="Supermicro",
        links_per_gpu=0,
        link_rate_mbps=0,
        devices=(),
    ),
    "dgx-h100": Board(
        platform="dgx-h100",
        product="DGXH100",
        vendor="NVIDIA",
        links_per_gpu=18,
        link_rate_mbps=26562,
        partitions=_HGX_H100_PARTITIONS,
        devices=_hgx_h100(shared_group=None),
    ),
    # Eight A100 of 80 GB and six NVSwitches that the machine itself uses: no service VM.
    "plain-gpu-a100": Board(
        platform="plain-gpu-a100",
        product="SYS-420GP-TNAR",
        vendor="Supermicro",
        links_per_gpu=12,
        link_rate_mbps=25000,
        devices=_bare_metal(
            ("07", "0b", "48", "4c", "88", "8b", "c8", "cb"),
            "20b2",
            "147f",
            ("c1", "c2", "c3", "c4", "c5", "c6"),
        ),
        memory_gib=1024,
        gpu_name="NVIDIA A100-SXM4-80GB",
        gpu_memory_mib=81920,
    ),
    # Four V100, which are connected without switches.
    "plain-gpu-v100": Board(
        platform="plain-gpu-v100",
        product="SYS-1029GQ-TVRT",
        vendor="Supermicro",
        links_per_gpu=6,
        link_rate_mbps=25781,
        devices=_bare_metal(("1a", "1c", "1d", "1e"), "1db1", "1212"),
        memory_gib=384,
        gpu_name="Tesla V100-SXM2-16GB",
        gpu_memory_mib=16384,
    ),
}


def board(platform: str) -> Board:
    """The board of a platform; `HostsError` names the platforms that can be simulated."""
    try:
        return BOARDS[platform]
    except KeyError:
        raise HostsError(
            f"platform {platform!r} cannot be simulated; choose one of {', '.join(sorted(BOARDS))}"
        ) from None
