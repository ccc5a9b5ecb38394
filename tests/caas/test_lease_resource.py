"""What the API server itself refuses about GPULeases, whoever writes."""

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from gpuclusters.lease.model import GPULeaseSpec, Phase, lease_object
from tests.caas.leasesteps import HOLDER, new_lease
from tests.fixtures.accounts import MERGE
from tests.fixtures.tables import beside
from tests.fixtures.tenancies import LEASES, Request

pytestmark = pytest.mark.lab

NOW = "2026-01-01T00:00:00Z"
PROOFS = [{"type": t, "status": "True", "reason": "Shown"} for t in ("ResetDone", "MemoryCleared")]
HELD = HOLDER | {"admitted": True, "allocated": True}


class Lease:
    """A new lease, in its first phase."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.path = f"{LEASES}/{new_lease(request, f'n-{secrets.token_hex(4)}')}"
        self.through([("Resetting", {"cycle": 1})])

    def body(self) -> dict[str, Any]:
        found = self.request.get(self.path)
        assert found
        return found

    def to(self, phase: str, **changes: Any) -> tuple[int, str]:
        """Store another phase; what is None goes away."""
        body = self.body()
        status = {**body.get("status", {}), "phase": phase, "since": NOW, **changes}
        kept = {key: value for key, value in status.items() if value is not None}
        code, answer = self.request("PUT", f"{self.path}/status", {**body, "status": kept})
        return code, answer.get("message", "")

    def through(self, steps: Iterable["Step"]) -> None:
        """The cycle, as the machine goes."""
        for phase, changes in steps:
            code, said = self.to(phase, **changes)
            assert code == 200, said


@pytest.fixture
def lease(lease_api: Request) -> Iterator[Lease]:
    made = Lease(lease_api)
    yield made
    lease_api("DELETE", made.path)


Step = tuple[str, dict[str, Any]]
"""A phase, and what else is written with it."""

FREE: list[Step] = [("Scrubbing", {}), ("Verifying", {}), ("Free", {"conditions": PROOFS})]
LEASED: list[Step] = [
    *FREE,
    ("Reserved", {"holder": HOLDER}),
    ("Activating", {}),
    ("Leased", {"holder": HOLDER | {"admitted": True}}),
]
RELEASING: list[Step] = [*LEASED, ("Leased", {"holder": HELD}), ("Releasing", {})]
TIMED_OUT = {"reason": "ReleaseTimedOut", "lastTenant": "acme"}
LET_GO = HELD | {"allocated": False}
SCRUBBING: list[Step] = [("Scrubbing", {"lastTenant": "acme"})]
WAYS: dict[str, list[Step]] = {
    "new": [],
    "free": FREE,
    "leased": LEASED,
    "releasing": RELEASING,
    # As the device plugin writes it, and the machine afterwards.
    "let go in quarantine": [
        *RELEASING,
        ("Quarantined", {"holder": HELD, **TIMED_OUT}),
        ("Quarantined", {"holder": LET_GO}),
        ("Quarantined", {"holder": None}),
    ],
    "closed": [("Quarantined", {"reason": "Test"})],
    "scrubbing": SCRUBBING,
    "verifying": [*SCRUBBING, ("Verifying", {})],
}
REFUSED = beside(__file__, "lease_refusals.yaml")


@pytest.mark.parametrize("case", REFUSED)
def test_the_server_refuses_what_the_machine_would_never_write(lease: Lease, case: str) -> None:
    row = REFUSED[case]
    written = dict(row["write"])
    if written.get("holder") is not None:
        written["holder"] = HOLDER | written["holder"]
    if "conditions" in written:
        written["conditions"] = PROOFS
    lease.through(WAYS[row["after"]])
    code, said = lease.to(**written)
    assert code == 422
    assert row["said"] in said


def test_a_gpu_that_the_kubelet_has_let_go_is_reset(lease: Lease) -> None:
    again: list[Step] = [
        ("Releasing", {"holder": LET_GO}),
        ("Resetting", {"cycle": 2, "holder": None}),
    ]
    lease.through([*RELEASING, *again])
    assert lease.body()["status"]["phase"] == Phase.RESETTING


def test_which_gpu_a_lease_is_of_cannot_be_changed_or_misnamed(lease: Lease) -> None:
    other = {"spec": {"pci": "0000:10:00.0"}}
    code, answer = lease.request("PATCH", lease.path, other, kind=MERGE)
    assert code == 422
    assert "cannot be changed" in answer["message"]
    body = lease_object(GPULeaseSpec.model_validate(lease.body()["spec"]))
    name = body["metadata"]["name"]
    for wrong in (name.replace("-gpu1", "-gpu2"), f"x-{name}"):
        code, answer = lease.request("POST", LEASES, {**body, "metadata": {"name": wrong}})
        assert code == 422
        assert "is named" in answer["message"]
