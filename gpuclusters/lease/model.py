"""The GPULease object, and what happens to a GPU between two tenants."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field

from gpuclusters.core import scripts
from gpuclusters.core.custom_resource import (
    GROUP,
    VERSION,
    Condition,
    Name,
    ObjectName,
    Part,
    Timestamp,
    definition,
)
from gpuclusters.core.ports import ObjectKind


class RecyclePolicy(StrEnum):
    """How much is done, and proven, before a GPU is free again."""

    FULL = "full"
    """Reset, clear memory, compare firmware and knobs with the golden set."""
    RESET_ONLY = "reset-only"
    """Reset and clear memory; firmware is not compared."""
    QUARANTINE_ALWAYS = "quarantine-always"
    """Reset and clear memory, then wait for an operator, whatever the result."""


GPU_LEASE = ObjectKind(GROUP, VERSION, "gpuleases", "GPULease", namespaced=False)
RECHECK_ANNOTATION = f"{GROUP}/recheck"
"""An operator sets it to any new value to send a quarantined GPU through the whole cycle again."""

WAITING_FOR_NODE = "WaitingForNode"
"""Reason of a GPU whose way to Free stands still because its node is lost; the message names the node."""

Module = Annotated[int, Field(ge=1, le=64)]


class Phase(StrEnum):
    """Where a GPU is on its way from one tenant to the next."""

    FREE = "Free"
    """Verified since the last tenant; may be given to the next."""
    RESERVED = "Reserved"
    """Meant for a pod; nothing has been done to the GPU yet."""
    ACTIVATING = "Activating"
    """Its partition is being activated."""
    LEASED = "Leased"
    """The pod's."""
    RELEASING = "Releasing"
    """The pod ends; waits until nothing uses the GPU."""
    RESETTING = "Resetting"
    """Nobody's; its partition is deactivated and it is being reset."""
    SCRUBBING = "Scrubbing"
    """Its memory is being cleared."""
    VERIFYING = "Verifying"
    """Its firmware and knobs are being compared with the golden set."""
    QUARANTINED = "Quarantined"
    """Out of service until an operator asks for a recheck."""


EDGES: Mapping[Phase, frozenset[Phase]] = {
    Phase.FREE: frozenset({Phase.RESERVED, Phase.QUARANTINED}),
    Phase.RESERVED: frozenset({Phase.FREE, Phase.ACTIVATING}),
    Phase.ACTIVATING: frozenset({Phase.LEASED, Phase.RELEASING, Phase.QUARANTINED}),
    Phase.LEASED: frozenset({Phase.RELEASING}),
    Phase.RELEASING: frozenset({Phase.RESETTING, Phase.QUARANTINED}),
    Phase.RESETTING: frozenset({Phase.SCRUBBING, Phase.QUARANTINED}),
    Phase.SCRUBBING: frozenset({Phase.VERIFYING, Phase.QUARANTINED}),
    Phase.VERIFYING: frozenset({Phase.FREE, Phase.QUARANTINED}),
    Phase.QUARANTINED: frozenset({Phase.RESETTING}),
}
"""From each phase to those that may follow. A new GPU begins in Resetting: nobody knows who had it."""

HELD = frozenset({Phase.RESERVED, Phase.ACTIVATING, Phase.LEASED, Phase.RELEASING})
"""Phases in which a lease has a holder. In quarantine it keeps the one that still has it allocated."""


class QuarantineReason(StrEnum):
    """Why a GPU is in quarantine: the word of its status and of the metric, and the code that explains it."""

    code: str

    def __new__(cls, word: str, code: str) -> Self:
        member = str.__new__(cls, word)
        member._value_, member.code = word, code
        return member

    ACTIVATION_TIMED_OUT = "ActivationTimedOut", "lease.activation-timed-out"
    RELEASE_TIMED_OUT = "ReleaseTimedOut", "lease.release-timed-out"
    RESET_TIMED_OUT = "ResetTimedOut", "lease.reset-timed-out"
    SCRUB_TIMED_OUT = "ScrubTimedOut", "lease.scrub-timed-out"
    VERIFICATION_TIMED_OUT = "VerificationTimedOut", "lease.verification-timed-out"
    IN_USE = "InUse", "lease.in-use"
    NVLINK_ERROR = "NVLinkError", "lease.nvlink-error"
    PARTITION_UNSUPPORTED = "PartitionUnsupported", "lease.partition-unsupported"
    RESET_FAILED = "ResetFailed", "lease.reset-failed"
    MEMORY_NOT_CLEARED = "MemoryNotCleared", "lease.memory-not-cleared"
    FIRMWARE_CHANGED = "FirmwareChanged", "lease.firmware-changed"
    INVENTORY_TRUNCATED = "InventoryTruncated", "lease.inventory-truncated"
    INVENTORY_LINK_REFUSED = "InventoryLinkRefused", "lease.inventory-link-refused"
    INVENTORY_REDIRECTED = "InventoryRedirected", "lease.inventory-redirected"
    INVENTORY_LOOPED = "InventoryLooped", "lease.inventory-looped"
    INVENTORY_INCOMPLETE = "InventoryIncomplete", "lease.inventory-incomplete"
    INVENTORY_DUPLICATED = "InventoryDuplicated", "lease.inventory-duplicated"
    INVENTORY_SLOW = "InventorySlow", "lease.inventory-slow"
    INVENTORY_TOO_LARGE = "InventoryTooLarge", "lease.inventory-too-large"
    INVENTORY_MALFORMED = "InventoryMalformed", "lease.inventory-malformed"
    KNOBS_CHANGED = "KnobsChanged", "lease.knobs-changed"
    NO_GOLDEN_SET = "NoGoldenSet", "lease.no-golden-set"
    HELD_BY_ANOTHER_POD = "HeldByAnotherPod", "lease.held-by-another-pod"
    POLICY = "Policy", "lease.policy"


class ConditionType(StrEnum):
    """What has been shown about a GPU in its present cycle."""

    PARTITION_ACTIVE = "PartitionActive"
    RESET_DONE = "ResetDone"
    MEMORY_CLEARED = "MemoryCleared"
    FIRMWARE_VERIFIED = "FirmwareVerified"


class Holder(Part):
    """The pod that has the GPU, and what it has with it."""

    tenant: Name
    namespace: Name
    pod: ObjectName
    pod_uid: Annotated[str, Field(max_length=64)]
    container: Annotated[str, Field(max_length=63)]
    """Id of the API's container; empty for a pod that the API did not make."""
    partition: Annotated[int, Field(ge=0, le=64)]
    gpus: Annotated[tuple[Module, ...], Field(min_length=1, max_length=16)]
    """All modules of the partition, this one among them."""
    admitted: bool = False
    """The pod may go to the scheduler."""
    allocated: bool = False
    """The kubelet has given the GPU to the pod; only the device plugin sets and clears it."""


class GPULeaseSpec(Part):
    """Which GPU it is."""

    node: ObjectName
    module: Module
    pci: Annotated[str, Field(max_length=32)]
    device: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of its CDI device."""


class GPULeaseStatus(Part):
    """Who has the GPU, and what has been shown about it."""

    phase: Phase
    since: Timestamp
    """When the phase was entered."""
    deadline: Timestamp | None = None
    """When the phase must have ended; afterwards the GPU is quarantined."""
    holder: Holder | None = None
    last_tenant: Name | None = None
    """Who had the GPU last, from the end of the holding until it is free; in quarantine it stays."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """Why it is quarantined, or what it waits for; one word."""
    message: Annotated[str, Field(max_length=1024)] = ""
    cycle: Annotated[int, Field(ge=1)]
    """Counts how often the GPU was sent to be reset; evidence of another cycle proves nothing."""
    recheck: Annotated[str, Field(max_length=256)] = ""
    """The value of the recheck annotation that was last obeyed."""
    recheck_cycle: Annotated[int, Field(ge=0)] = 0
    """The cycle that it began."""
    observed_generation: int | None = None
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()


def lease_name(host: str, module: int) -> str:
    """The name of a GPU's lease."""
    return f"{host}-gpu{module}"


def lease_object(spec: GPULeaseSpec) -> dict[str, Any]:
    """The object for its creation; its status comes afterwards."""
    labels = {
        "app.kubernetes.io/managed-by": "gpu-clusters",
        "kubernetes.io/hostname": spec.node,
    }
    named = GPU_LEASE.body(lease_name(spec.node, spec.module), labels=labels)
    return named | {"spec": spec.document()}


def _strings(values: frozenset[Phase]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in sorted(values)) + "]"


def crd() -> dict[str, Any]:
    edges = ", ".join(f"'{phase}': {_strings(after)}" for phase, after in EDGES.items())
    keeps = _strings(HELD | {Phase.QUARANTINED})
    words = {"edges": f"{{{edges}}}", "held": _strings(HELD), "keeps": keeps}
    described = scripts.manifest("lease/gpulease.yaml", words)
    return definition(GPU_LEASE, described, spec=GPULeaseSpec, status=GPULeaseStatus)


Lease = Mapping[str, Any]

_DONE = frozenset({Phase.FREE, Phase.QUARANTINED})


def held_by(tenant: str, leases: Sequence[Lease]) -> list[str]:
    """Leases that the tenant holds, as "name (phase)"."""
    found = _tenants(leases)
    return sorted(
        f"{name} ({phase})" for name, phase, who in found if phase in HELD and who == tenant
    )


def awaited(tenant: str, leases: Sequence[Lease]) -> dict[str, str]:
    """Phase by name of the leases that the tenant holds, or had last and that are not yet scrubbed."""
    found = sorted(_tenants(leases))
    return {name: phase for name, phase, who in found if phase not in _DONE and who == tenant}


def _tenants(leases: Sequence[Lease]) -> Iterator[tuple[str, str, str]]:
    """Name, phase and tenant of each: who holds the GPU, or afterwards who had it last."""
    for lease in leases:
        status = lease.get("status") or {}
        phase = str(status.get("phase", "unknown"))
        holder = (status.get("holder") or {}).get("tenant")
        who = holder if phase in HELD else status.get("lastTenant")
        yield str(lease["metadata"]["name"]), phase, str(who or "")
