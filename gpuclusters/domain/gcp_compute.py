"""What the Compute API is asked for and what it answers, as values; the port of machines on Google Cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


class Refused(StrEnum):
    """Why a zone did not make or start a machine."""

    STOCK = "stock"
    """It has no such machine left at the moment."""
    QUOTA = "quota"
    """The project may not have more of it."""
    UNKNOWN_TYPE = "unknown-type"
    """It does not have such machines or GPUs at all."""
    OTHER = "other"
    """The machine itself is not right; another zone would say the same."""


class ZoneRefusal(Exception):  # noqa: N818 - an answer, and most often not the end
    """A zone did not make or start a machine."""

    def __init__(self, kind: Refused, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine as the API shows it."""

    name: str
    zone: str
    status: str
    """PROVISIONING, STAGING, RUNNING, STOPPING, SUSPENDED, TERMINATED, …"""
    instance_id: str
    address: str
    """Within the network."""
    public_address: str
    labels: Mapping[str, str]
    label_fingerprint: str
    tags: Sequence[str]
    tag_fingerprint: str
    deletion_protection: bool
    machine_type: str


@dataclass(frozen=True, slots=True)
class Quota:
    """How much a project may have of something, and how much it has."""

    metric: str
    limit: float
    usage: float

    @property
    def free(self) -> float:
        """How much more it may have."""
        return self.limit - self.usage


class Compute(Protocol):
    """The part of the Compute API that machines need. Waits are bounded.

    Every method raises AdapterError where the API cannot be reached or says no.
    """

    def find(self, project: str, name: str) -> Sequence[Instance]:
        """Machines of that name in all zones."""

    def owned(self, project: str, owner: str) -> Sequence[Instance]:
        """Machines that carry the label of an owner, in all zones."""

    def get(self, project: str, zone: str, name: str) -> Instance | None:
        """One machine; None if it is not there."""

    def insert(self, project: str, zone: str, body: Mapping[str, Any], seconds: float) -> None:
        """Make a machine and wait until it is made.

        Raises:
            ZoneRefusal: the zone said no; nothing of the machine is left.
        """

    def start(self, project: str, zone: str, name: str, seconds: float) -> None:
        """Start a machine that is stopped.

        Raises:
            ZoneRefusal: the zone said no.
        """

    def delete(self, project: str, zone: str, name: str, seconds: float) -> None:
        """Delete a machine with its boot disk; absent is fine."""

    def set_labels(self, project: str, instance: Instance, labels: Mapping[str, str]) -> None:
        """Replace its labels."""

    def set_tags(self, project: str, instance: Instance, tags: Sequence[str]) -> None:
        """Replace its network tags."""

    def set_deletion_protection(self, project: str, instance: Instance, on: bool) -> None:  # noqa: FBT001
        """Let Google refuse to delete it, or no longer."""

    def quotas(self, project: str, region: str) -> Mapping[str, Quota]:
        """Quotas of a region and those of the whole project, by metric."""


STOCK_CODES = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "STOCKOUT",
)
QUOTA_CODES = ("QUOTA_EXCEEDED", "quotaExceeded", "LIMIT_EXCEEDED")
UNKNOWN_CODES = ("notFound", "RESOURCE_NOT_FOUND", "UNSUPPORTED_OPERATION", "invalid")


def refusal(code: str, message: str) -> ZoneRefusal:
    """What an error of an operation, or of the call that begins it, means for the choice of a zone."""
    if code in STOCK_CODES or "does not have enough resources available" in message:
        return ZoneRefusal(Refused.STOCK, message)
    if code in QUOTA_CODES:
        return ZoneRefusal(Refused.QUOTA, message)
    about_type = "acceleratorTypes/" in message or "machineTypes/" in message
    if code in UNKNOWN_CODES and about_type:
        return ZoneRefusal(Refused.UNKNOWN_TYPE, message)
    return ZoneRefusal(Refused.OTHER, f"{code}: {message}")
