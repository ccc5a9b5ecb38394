"""Which XIDs wake somebody up.

The driver reports what went wrong on a GPU as an XID. The list to ignore is that of NVIDIA's device
plugin (k8s-device-plugin v0.20, `internal/rm/health.go`): these come from the application. The list to
page on is ours: errors after which the GPU, its memory or its links are not to be trusted (NVIDIA's
"XID Errors" catalogue). Everything else is worth a look in working hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Urgency(StrEnum):
    """What an XID leads to."""

    PAGE = "page"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Xid:
    """One code."""

    number: int
    urgency: Urgency
    meaning: str
    action: str


_P, _I = Urgency.PAGE, Urgency.IGNORE

XIDS: tuple[Xid, ...] = (
    Xid(13, _I, "graphics engine exception", "the application's; look at its log"),
    Xid(31, _I, "GPU memory page fault", "the application's; look at its log"),
    Xid(43, _I, "GPU stopped processing", "the application's; it is ended, the GPU is well"),
    Xid(45, _I, "preemptive cleanup", "follows another error or the end of a program"),
    Xid(48, _P, "double-bit ECC error", "drain the node and reset the GPU; see 63 and 64"),
    Xid(63, _P, "row remapping recorded", "drain the node and reset the GPU, which remaps the row"),
    Xid(64, _P, "row remapping failed", "drain the node and reset the GPU; again: replace it"),
    Xid(68, _I, "video processor exception", "the application's; look at its log"),
    Xid(74, _P, "NVLink error", "reset the GPUs of the board; again on one link: hardware"),
    Xid(79, _P, "GPU has fallen off the bus", "power-cycle the host; again: reseat or replace it"),
    Xid(94, _P, "contained ECC error", "the application ended; reset the GPU when it is free"),
    Xid(95, _P, "uncontained ECC error", "drain the node and reset the GPU at once"),
    Xid(109, _I, "context switch timeout", "the application's; look at its log"),
    Xid(119, _P, "GSP RPC timeout", "drain the node and reset the GPU; again: power-cycle"),
    Xid(120, _P, "GSP error", "drain the node and reset the GPU; again: power-cycle"),
)

BY_NUMBER: Mapping[int, Xid] = {one.number: one for one in XIDS}


def pattern(urgency: Urgency) -> str:
    """These codes as a regular expression of PromQL."""
    return "|".join(str(one.number) for one in XIDS if one.urgency is urgency)
