"""GPULeases on a real API server, taken through their phases by whoever a test wants."""

from collections.abc import Callable
from typing import Any

from gpuclusters.lease.model import GPULeaseSpec, lease_object
from tests.fixtures.tenancies import LEASES
from tests.fixtures.waiting import eventually

SINCE = "2026-11-21T00:00:00Z"
EVIDENCE = ("PartitionActive", "ResetDone", "MemoryCleared", "FirmwareVerified")
HOLDER = {
    "tenant": "acme", "namespace": "tenant-acme", "pod": "work", "podUid": "1", "container": "c-1",
    "partition": 3, "gpus": [1], "admitted": False, "allocated": False,
}  # fmt: skip
_HELD = ("Reserved", "Activating", "Leased", "Releasing")

Ask = Callable[[str, str, Any], tuple[int, Any]]
"""Method, path and body; status and answer."""


def shown(*kinds: str) -> list[dict[str, str]]:
    done = {"status": "True", "reason": "Done", "lastTransitionTime": SINCE}
    return [{"type": kind, **done} for kind in kinds]


def new_lease(ask: Ask, node: str, module: int = 1) -> str:
    """Its name."""
    pci, device = f"0000:{module:02x}:00.0", str(10 + module)
    spec = GPULeaseSpec(node=node, module=module, pci=pci, device=device)
    status, answer = ask("POST", LEASES, lease_object(spec))
    assert status == 201, answer
    return f"{node}-gpu{module}"


def drive(get: Callable[[str], Any], ask: Ask, name: str, *phases: str, **more: Any) -> None:
    """Take the lease through these phases, as the API server allows it; others may write too."""

    def write(phase: str) -> bool:
        found = get(f"{LEASES}/{name}")
        status = {**found.get("status", {"cycle": 1}), "phase": phase, "since": SINCE, **more}
        if phase not in _HELD:
            status.pop("holder", None)
        if phase == "Free":
            status.pop("lastTenant", None)
        code, answer = ask("PUT", f"{LEASES}/{name}/status", {**found, "status": status})
        assert code in (200, 409), answer
        return code == 200

    for phase in phases:
        eventually(lambda phase=phase: write(phase), what=f"{name} {phase}")
