"""Machines as a preflight reads them: one before, one after preparation, and ways to break them."""

import dataclasses
from typing import Any

from pydantic import TypeAdapter

from gpuclusters.compat.platforms import PRESETS, Platform, Preset
from gpuclusters.fabric.table import Board
from gpuclusters.preflight.model import Bar, Expects, HostFacts, NumaFact, PciFact, expects_of

PRESET: Preset = PRESETS[Platform.SUPERMICRO_HGX_H100]
BOARD = Board(PRESET.gpus, PRESET.switches, PRESET.extra_functions)
EXPECTS: Expects = expects_of(PRESET, BOARD, huge_pages_1g=(800, 800))
GPU_1, GPU_5 = PRESET.gpus[1], PRESET.gpus[5]
SWITCH_GROUP = "14"
EXTRA = PRESET.extra_functions[0]
MIB = 2**20
BRIDGE = "0000:03:00.0"
HEADER = bytes([0xDE, 0x10, 0x30, 0x23, 6, 4, 0x10, 0, 0xA1, 0, 2, 3, 0, 0, 0, 0])
FALLEN = b"\xff" * 16
FACT = TypeAdapter(PciFact)


def functions(*, prepared: bool) -> dict[str, PciFact]:
    found: dict[str, PciFact] = {}
    for number, address in enumerate([*EXPECTS.gpus.values(), *EXPECTS.switches, EXTRA]):
        is_gpu = address in EXPECTS.gpus.values()
        group = str(20 + number) if is_gpu else SWITCH_GROUP
        start = 0x40_0000_0000 * (number + 1)
        found[address] = PciFact(
            address=address,
            pci_id=EXPECTS.wanted_id(address) or "11f8:4128",
            class_code="030200" if is_gpu else "068000",
            numa_node=number % 2,
            driver="vfio-pci" if prepared else None,
            iommu_group=group if prepared else None,
            header=HEADER,
            bars={
                int(bar): Bar(start + int(bar) * 2**38, mib * MIB)
                for bar, mib in EXPECTS.gpu_bars_mib.items()
            }
            if is_gpu
            else {0: Bar(start, 32 * MIB)},
            resettable=True,
        )
    found[BRIDGE] = PciFact(
        address=BRIDGE,
        pci_id="11f8:4000",
        class_code="060400",
        driver="pcieport",
        iommu_group=SWITCH_GROUP if prepared else None,
    )
    return found


def replace(facts: HostFacts, **changes: Any) -> HostFacts:
    """The machine with other facts."""
    return facts.model_copy(update=changes)


def bare(**changes: Any) -> HostFacts:
    """An operating system and nothing else; nouveau loads by itself."""
    values: dict[str, Any] = {
        "root": True,
        "kernel": "6.14.0-37-generic",
        "command_line": ("ro", "quiet"),
        "cpu_vendor": "GenuineIntel",
        "cpu_flags": frozenset({"vmx", "pdpe1gb"}),
        "acpi_tables": frozenset({"DMAR"}),
        "memory_kib": 2014 * 2**20,
        "numa": {0: NumaFact(1007 * 2**20, 0), 1: NumaFact(1007 * 2**20, 0)},
        "functions": functions(prepared=False),
        "iommu_groups": 0,
        "modules": frozenset({"nouveau"}),
        "nodes": frozenset({"/dev/kvm"}),
        "commands": frozenset({"systemctl", "apt-get", "fuser"}),
        "free_gib": 800,
    }
    return HostFacts(**{**values, **changes})


def prepared(**changes: Any) -> HostFacts:
    """As `up` leaves it."""
    found = functions(prepared=True)
    groups = {f.iommu_group for f in found.values() if f.iommu_group}
    values: dict[str, Any] = {
        "command_line": ("ro", "intel_iommu=on", "iommu=pt"),
        "functions": found,
        "iommu_groups": len(groups),
        "modules": frozenset({"vfio_pci", "vfio"}),
        "nodes": frozenset({"/dev/kvm", "/dev/vfio/vfio", *(f"/dev/vfio/{g}" for g in groups)}),
        "numa": {0: NumaFact(1007 * 2**20, 800), 1: NumaFact(1007 * 2**20, 800)},
        "qemu": "10.1.0",
        "libvirt": "10.0.0",
        "firmware": frozenset({"/usr/share/OVMF/OVMF_CODE_4M.fd"}),
    }
    return bare(**{**values, **changes})


def having(facts: HostFacts, address: str, **changes: Any) -> HostFacts:
    """The machine with one function changed, or added."""
    old = facts.functions.get(address) or PciFact(
        address=address, pci_id="15b3:1021", class_code="020000"
    )
    fact = FACT.validate_python({**dataclasses.asdict(old), **changes})
    return replace(facts, functions={**facts.functions, address: fact})


def lacking(facts: HostFacts, address: str) -> HostFacts:
    """The machine without a function."""
    rest = {a: f for a, f in facts.functions.items() if a != address}
    return replace(facts, functions=rest)
