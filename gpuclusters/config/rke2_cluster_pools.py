"""`pools` of an `rke2` cluster: agents that are alike, with their GPUs, labels, taints and driver."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, Strict, WithJsonSchema

from gpuclusters.config.base import DnsLabel, Flag, Integer, Section, Text, refusal
from gpuclusters.config.rke2_cluster_driver import DriverBranch, DriverVersion
from gpuclusters.domain import gpu_products
from gpuclusters.domain.rke2_matrix import ModulesPolicy, OperatingSystem

_KEY = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_TAINT = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^=:]*))?:(NoSchedule|PreferNoSchedule|NoExecute)")


def _product(value: str) -> str:
    if value not in gpu_products.names():
        known = gpu_products.names()
        asked = value[:60].lower()
        near = [name for name in known if name.startswith(asked)] or difflib.get_close_matches(
            asked, known, n=3, cutoff=0.4
        )
        raise refusal(
            "is not a GPU that is known here", f"write one like {', '.join(near or known)}"
        )
    return value


def _label_key(value: str) -> str:
    if not _KEY.fullmatch(value):
        raise refusal("is not the key of a label", "write one like example.com/pool or pool")
    return value


def _label_value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise refusal(
            "is not the value of a label",
            "write at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
        )
    return value


def _taint(value: str) -> str:
    match = _TAINT.fullmatch(value)
    if (
        match is None
        or not _KEY.fullmatch(match["key"])
        or not _VALUE.fullmatch(match["value"] or "")
    ):
        raise refusal(
            "is not a taint",
            "write key=value:NoSchedule, with PreferNoSchedule or NoExecute as other effects",
        )
    return value


GpuProduct = Annotated[
    str,
    Strict(),
    AfterValidator(_product),
    WithJsonSchema({"type": "string", "enum": list(gpu_products.names())}),
]
LabelKey = Annotated[str, Strict(), AfterValidator(_label_key)]
LabelValue = Annotated[str, Strict(), AfterValidator(_label_value)]
Taint = Annotated[Text, AfterValidator(_taint)]


class PoolGpu(Section):
    """The GPUs of each machine of a pool."""

    product: GpuProduct
    """What they are: a100-sxm4-80gb, h100-sxm5-80gb, l40s, … (docs/rke2.md has the list)."""
    count: Annotated[Integer, Field(ge=1, le=16)]
    """How many each machine has; a node that shows fewer is not ready."""
    nvswitch: Flag | None = None
    """Whether they are connected by NVSwitches, which need the fabric manager; by default what machines with
    that many of them have."""


class PoolDriver(Section):
    """Where a pool's driver differs from `driver`, for GPUs that others' driver does not know."""

    branch: DriverBranch | None = None
    """Branch, 580 for example."""
    version: DriverVersion | None = None
    """Exact version."""
    modules: ModulesPolicy | None = None
    """Open or proprietary kernel modules."""


class Pool(Section):
    """Machines that are alike."""

    name: DnsLabel
    """Name of the pool; its nodes carry it as the label gpu-clusters.dev/pool."""
    nodes: tuple[DnsLabel, ...]
    """Its machines, by name. One that is a server too carries GPUs on a server, which is warned of."""
    gpu: PoolGpu | None = None
    """Its GPUs; none if it is not stated."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels of its nodes."""
    taints: tuple[Taint, ...] = ()
    """Taints of its nodes at their first registration; the GPU Operator is made to tolerate them."""
    mig: Annotated[Text | None, Field(max_length=63)] = None
    """Name of a MIG layout: all-1g.10gb, all-balanced, all-disabled, or one of sharing.layouts."""
    driver: PoolDriver | None = None
    """Where its driver differs from the cluster's."""
    operating_system: OperatingSystem | None = None
    """What its machines run, if it differs from the cluster's operating-system."""


def parse_taint(text: str) -> dict[str, Any]:
    """A taint as Kubernetes has it: key, value, effect."""
    match = _TAINT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a taint")
    return {"key": match["key"], "value": match["value"] or "", "effect": text.rpartition(":")[2]}
