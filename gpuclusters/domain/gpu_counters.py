"""What dcgm-exporter is told to export: its own default list, and what the alerts need beside it.

The exporter's list (`etc/dcp-metrics-included.csv` of NVIDIA/dcgm-exporter 4.4 to 4.8, whose names these are,
see `RENAMED`) leaves out ECC errors, throttling and the count of XIDs, so that alerts about them would never
fire. The rendered list is the key `dcgm-metrics.csv` of the ConfigMap that the GPU operator's value
`dcgmExporter.config.name` names; the exporter reads it when it starts, so the ConfigMap is to be named after
its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from gpuclusters.domain.dated_table import Source

FILE = "dcgm-metrics.csv"
"""Key of the ConfigMap that the exporter reads."""

ALWAYS = frozenset(
    {"gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_ID", "GPU_I_PROFILE"}
)
"""Labels of every series; the last two of MIG instances only. `Hostname` is left out on purpose:
releases after 4.8.2 call it `hostname`."""
WORKLOAD = frozenset({"exported_namespace", "exported_pod", "exported_container"})
"""Which pod uses the GPU, as Prometheus renames it when the ServiceMonitor does not honor labels."""
TARGET = frozenset(
    {"node", "instance", "job", "namespace", "pod", "service", "endpoint", "container"}
)
"""What Prometheus puts on every series of a ServiceMonitor; `node` by the relabeling that we set."""


class Kind(StrEnum):
    """Type of a metric, as the exporter's file spells it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    LABEL = "label"
    """No series of its own: a label on all others."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One line of the file."""

    field: str
    kind: Kind
    help: str
    labels: frozenset[str] = frozenset()
    """Labels that only this one has."""


RENAMED = (4, 9)
"""The exporter that calls 23 fields otherwise, counts 11 in other units and renames the driver's label. No
operator of the table brings it; alerts and dashboards have to follow before one does."""

_G, _C = Kind.GAUGE, Kind.COUNTER

SOURCES = (
    Source(
        at="github.com/NVIDIA/dcgm-exporter etc/dcp-metrics-included.csv; fields of DCGM 4",
        release="d5e5f510",
        date=date(2026, 8, 21),
    ),
)
"""Of the rows below."""

DEFAULT: tuple[Counter, ...] = (
    Counter("DCGM_FI_DEV_SM_CLOCK", _G, "SM clock frequency (in MHz)."),
    Counter("DCGM_FI_DEV_MEM_CLOCK", _G, "Memory clock frequency (in MHz)."),
    Counter("DCGM_FI_DEV_MEMORY_TEMP", _G, "Memory temperature (in C)."),
    Counter("DCGM_FI_DEV_GPU_TEMP", _G, "GPU temperature (in C)."),
    Counter("DCGM_FI_DEV_POWER_USAGE", _G, "Power draw (in W)."),
    Counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", _C, "Energy since boot (in mJ)."),
    Counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", _C, "PCIe retries."),
    Counter("DCGM_FI_DEV_GPU_UTIL", _G, "GPU utilization (in %)."),
    Counter("DCGM_FI_DEV_MEM_COPY_UTIL", _G, "Memory utilization (in %)."),
    Counter("DCGM_FI_DEV_XID_ERRORS", _G, "The last XID.", frozenset({"err_code", "err_msg"})),
    Counter("DCGM_FI_DEV_FB_FREE", _G, "Framebuffer memory free (in MiB)."),
    Counter("DCGM_FI_DEV_FB_USED", _G, "Framebuffer memory used (in MiB)."),
    Counter("DCGM_FI_DEV_FB_RESERVED", _G, "Framebuffer memory reserved (in MiB)."),
    Counter("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", _C, "NVLink traffic of all lanes."),
    Counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", _C, "Rows remapped, uncorrectable."),
    Counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", _C, "Rows remapped, correctable."),
    Counter("DCGM_FI_DEV_ROW_REMAP_FAILURE", _G, "Whether remapping of rows has failed."),
    Counter("DCGM_FI_DRIVER_VERSION", Kind.LABEL, "Driver version."),
    Counter("DCGM_FI_PROF_GR_ENGINE_ACTIVE", _G, "Share of time the engine is active."),
    Counter("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", _G, "Share of cycles the tensor pipe is active."),
    Counter("DCGM_FI_PROF_DRAM_ACTIVE", _G, "Share of cycles the memory interface is active."),
    Counter("DCGM_FI_PROF_PCIE_TX_BYTES", _G, "PCIe bytes sent per second."),
    Counter("DCGM_FI_PROF_PCIE_RX_BYTES", _G, "PCIe bytes received per second."),
)
"""What NVIDIA's own list has, without video engines, vGPU licences and pages that only Volta retires."""

EXTRA: tuple[Counter, ...] = (
    Counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", _C, "Single-bit ECC errors since the driver loaded."),
    Counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", _C, "Double-bit ECC errors since the driver loaded."),
    Counter("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", _C, "Double-bit ECC errors of the GPU's life."),
    Counter("DCGM_FI_DEV_RETIRED_DBE", _C, "Pages retired for double-bit errors (Volta)."),
    Counter("DCGM_FI_DEV_POWER_VIOLATION", _C, "Time throttled for power."),
    Counter("DCGM_FI_DEV_THERMAL_VIOLATION", _C, "Time throttled for temperature."),
    Counter("DCGM_FI_DEV_POWER_MGMT_LIMIT", _G, "Power limit (in W)."),
    Counter("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", _C, "NVLink flow-control CRC errors."),
    Counter("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", _C, "NVLink retries."),
    Counter("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", _C, "NVLink recoveries, to NVLink 4."),
    # Field 1213 of DCGM 4; 1211 and 1212 are the parts of it that succeeded and failed.
    Counter(
        "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", _C, "NVLink recoveries, from NVLink 5."
    ),
    Counter(
        "DCGM_EXP_XID_ERRORS_COUNT",
        _G,
        "XIDs within the exporter's window.",
        frozenset({"xid", "window_size_in_ms"}),
    ),
    Counter(
        "DCGM_EXP_CLOCK_EVENTS_COUNT",
        _G,
        "Clock events within the exporter's window.",
        frozenset({"clock_event", "window_size_in_ms"}),
    ),
)
"""What the default list leaves out and our alerts and dashboards ask for."""

COUNTERS = DEFAULT + EXTRA


def csv(counters: Iterable[Counter] = COUNTERS) -> str:
    """The file as the exporter reads it: field, type, help; no comma in the help."""
    lines = ["# field, Prometheus type, help"]
    lines += [f"{one.field}, {one.kind.value}, {one.help.replace(',', ';')}" for one in counters]
    return "\n".join(lines) + "\n"


def exported(counters: Iterable[Counter] = COUNTERS) -> Mapping[str, frozenset[str]]:
    """Labels by the name of each series that a scrape of the exporter gives."""
    kept = list(counters)
    static = frozenset(one.field for one in kept if one.kind is Kind.LABEL)
    common = ALWAYS | WORKLOAD | TARGET | static
    return {one.field: common | one.labels for one in kept if one.kind is not Kind.LABEL}
