"""`leases`: what a GPU goes through between two tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from gpuclusters.config.base import Flag, Integer, Seconds, Section, Text
from gpuclusters.lease.model import RecyclePolicy


class Knobs(Section):
    """Switches that survive a reset in the GPU's own memory; a tenant with root in its VM can turn them."""

    ecc: Flag = True
    """Error correction of the GPU's memory."""
    mig: Flag = False
    """Multi-Instance GPU mode."""
    cc: Flag = False
    """Confidential computing mode."""
    ppcie: Flag = False
    """Protected PCIe mode."""


class GoldenFirmware(Section):
    """What a GPU must be like before the next tenant gets it; anything else is quarantined."""

    versions: Mapping[Text, Annotated[tuple[Text, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """Accepted versions by prefix of the item's id in the BMC's firmware inventory, for example
    `HGX_FW_GPU: ["96.00.A5.00.01"]`. Ids vary by BMC release, so prefixes are compared. Items of the GPU
    in question are those that end with its number; all others hold for the whole machine."""
    knobs: Knobs = Field(default_factory=Knobs)
    """Switches, as the tool on the machine reads them."""


class Deadlines(Section):
    """The longest that each phase may last; afterwards the GPU is quarantined, or its pod deleted."""

    reserved_seconds: Seconds = 60
    """Until the partition's activation begins."""
    activating_seconds: Seconds = 120
    """Activation of the partition."""
    admission_seconds: Seconds = 180
    """From the lease to the kubelet's allocation; afterwards the pod is deleted and the lease returned."""
    releasing_seconds: Annotated[Integer, Field(ge=60, le=86_400)] = 600
    """Until the VM has let go of the GPU and its partition is inactive. At least twice the 30 seconds that a
    pod has to end by itself."""
    resetting_seconds: Seconds = 180
    """Reset of the GPU."""
    scrubbing_seconds: Seconds = 900
    """Clearing of its memory."""
    verifying_seconds: Seconds = 180
    """Comparison with the golden set."""


class Leases(Section):
    """Hand-over of GPUs between tenants."""

    recycle_policy: RecyclePolicy = RecyclePolicy.FULL
    """full: reset, clear, compare firmware. reset-only: reset, clear. quarantine-always: reset, clear, then
    wait for an operator."""
    golden_firmware: GoldenFirmware = Field(default_factory=GoldenFirmware)
    """What `full` compares with. The lab knows what its machines have; existing machines need it stated."""
    deadlines: Deadlines = Field(default_factory=Deadlines)
    """Time limits."""
