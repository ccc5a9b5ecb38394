"""The proof that a tenant runs: against the real application, over a cluster in memory."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.container_api.client import ContainerApi
from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.core.finding import Refused
from gpuclusters.proof.checks import Outcome, ProofResult
from gpuclusters.proof.containers import ContainerRun, Customer
from gpuclusters.proof.model import ContainerProof
from tests.caas.api.apikit import GPU, FakeCluster, FakeIssuer, lease, listening, tenancy

IMAGE = "registry.example.com/pytorch@sha256:" + "0" * 64
PROGRAM = (Path(__file__).parents[2] / "gpuclusters/proof/scripts/matmul.py").read_text()
H100 = {
    "name": "NVIDIA H100 80GB HBM3", "memory_mib": 81079, "sms": 132, "tflops": 750.0, "error": 3e-4,
    "differ": 0, "celsius": 61, "too_hot": False, "nvlinks": 18,
}  # fmt: skip
"""What one says of itself: 81,079 MB and 132 SMs are deviceQuery's figures."""


@dataclass
class Machines(FakeCluster):
    """Runs each pod at once, on GPUs that say this of themselves, and forgets what is deleted."""

    device: Mapping[str, Any] = field(default_factory=lambda: H100)
    ends: tuple[str, int] = ("Succeeded", 0)
    instead: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """What becomes of a pod, where it does not end so."""
    last_words: bytes = b""
    made: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.put("tenancies", tenancy("acme", gpus=8))

    async def create(self, kind: Any, body: Mapping[str, Any]) -> dict[str, Any]:
        made = await super().create(kind, body)
        if kind.plural == "pods":
            self.made.append(made)
            self.put("pods", {**made, **(self.instead or self.ended)(made)})
        return made

    def ended(self, pod: dict[str, Any]) -> dict[str, Any]:
        spec = {**pod["spec"], "schedulingGates": []}
        count = int(pod["spec"]["containers"][0]["resources"]["limits"][GPU])
        devices = [{**self.device, "uuid": f"GPU-{n}"} for n in range(count)]
        if count == 1:
            devices = [{**one, "nvlinks": 0} for one in devices]
        line = {"proof": "matmul", "format": 1, "cpu": False, "driver": "595.58.03"}
        self.logs = [self.last_words or json.dumps({**line, "devices": devices}).encode()]
        phase, code = self.ends
        since = {"startedAt": "2026-01-01T00:05:00Z", "finishedAt": "2026-01-01T00:06:00Z"}
        over = {"terminated": {"exitCode": code, "reason": "Completed", **since}}
        status = {"phase": phase, "containerStatuses": [{"name": "main", "state": over}]}
        return {"spec": spec, "status": status}

    async def delete(self, kind: Any, name: str, namespace: str = "", **options: Any) -> None:
        await super().delete(kind, name, namespace, **options)
        if self.server.get(kind, name, namespace):
            self.remove(kind.plural, name, namespace)


class Quick(Clock):
    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.01))


def prove(
    cluster: Machines, *, tenant: str = "acme", token: str | None = None, **wanted: Any
) -> ProofResult:
    """The proof by a tenant's containers; nothing of it is left, whether it is refused or not."""
    issuer = FakeIssuer()

    async def act() -> ProofResult:
        async with listening(cluster, issuer, max_body_bytes=65_536) as (_, port):
            run = ContainerRun(
                customer=Customer(
                    api=ContainerApi(f"http://127.0.0.1:{port}"),
                    tenant=tenant,
                    token=issuer.token(tenant) if token is None else token,
                ),
                wanted=ContainerProof.model_validate({"tenant": tenant, "image": IMAGE, **wanted}),
                program=PROGRAM,
                product="h100-sxm5-80gb",
                simulated=False,
                clock=Quick(),
                reporter=Reporter(),
            )
            try:
                return await asyncio.to_thread(run.run)
            finally:
                assert cluster.pods == [], "something is left"

    return asyncio.run(act())


def failed(proof: ProofResult) -> dict[str, list[str]]:
    """What did not pass, by subject."""
    found: dict[str, list[str]] = {}
    for check in proof.checks:
        if check.outcome is not Outcome.PASSED:
            said = f"{check.outcome}: {check.what}: {check.said}"
            found.setdefault(check.subject, []).append(said)
    return found


def test_a_container_of_each_size_runs_and_every_gpu_is_what_was_bought() -> None:
    cluster = Machines()
    proof = prove(cluster)
    assert failed(proof) == {}
    assert proof.remarks == ()
    multiplied = [c for c in proof.checks if c.what == "multiplies matrices"]
    assert len(multiplied) == 8 + 4 + 2 + 1
    assert {c.subject.split()[0] for c in multiplied} == {"size-1", "size-2", "size-4", "size-8"}
    assert "81079 MiB, 132 SMs, 18 NVLinks up, 61 °C while it works" in multiplied[0].said
    assert multiplied[0].figures["floor_tflops"] == pytest.approx(989 * 0.7)
    starts = [c.figures["start_seconds"] for c in proof.checks if c.what == "starts"]
    assert len(starts) == 4
    assert all(60 < seconds <= 300 for seconds in starts)


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ({"tflops": 400.0}, "too slow"),
        ({"sms": 114}, "h100-sxm5-80gb has 132 SMs"),
        ({"memory_mib": 40536}, "h100-sxm5-80gb has 81920 MiB of memory"),
    ],
)
def test_a_gpu_that_is_not_what_was_bought_does_not_pass(device: dict[str, Any], said: str) -> None:
    found = failed(prove(Machines(device=H100 | device)))
    assert set(found) == {f"size-{size} GPU-{n}" for size in (1, 2, 4, 8) for n in range(size)}
    assert all(said in one for lines in found.values() for one in lines)


def test_nvlinks_must_be_up_where_there_are_several_gpus() -> None:
    found = failed(prove(Machines(device=H100 | {"nvlinks": 12})))
    assert all("has 18 NVLinks" in one for lines in found.values() for one in lines)
    assert "size-1 GPU-0" not in found
    assert "size-2 GPU-1" in found


def test_sizes_that_the_tenancy_does_not_allow_are_named() -> None:
    cluster = Machines()
    cluster.put("tenancies", tenancy("acme", gpus=4, sizes=[1, 2, 4]))
    proof = prove(cluster)
    assert failed(proof) == {}
    assert proof.remarks == (
        "A container of 8 GPUs is not possible: the tenancy of acme allows 1, 2, 4.",
    )


def test_gpus_that_others_have_are_not_waited_for() -> None:
    cluster = Machines()
    for host in ("hgx-01", "hgx-02"):
        cluster.put("gpuleases", lease(host, 1, "Leased", "somebody"))
    assert failed(prove(cluster)) == {
        "size-8": ["not-tried: gets its GPUs: no partition of 8 GPUs is free"]
    }


def test_a_quota_that_is_used_is_told_with_what_is_in_use() -> None:
    cluster = Machines()
    cluster.put("tenancies", tenancy("acme", gpus=1, sizes=[1, 2]))
    (line,) = failed(prove(cluster))["size-2"]
    assert "2 asked for, 0 of 1 used" in line


def test_a_container_that_fails_is_told_with_its_last_words_and_is_removed() -> None:
    words = b"Traceback\nModuleNotFoundError: No module named 'torch'\n"
    found = failed(prove(Machines(ends=("Failed", 1), last_words=words)))
    assert set(found) == {"size-1", "size-2", "size-4", "size-8"}
    assert "exit code 1; its log ends: Traceback | ModuleNotFoundError" in found["size-1"][0]


def test_a_container_that_never_ends_is_removed_when_its_time_is_over() -> None:
    cluster = Machines(instead=lambda _pod: {})
    cluster.put("tenancies", tenancy("acme", gpus=1, sizes=[1]))
    (line,) = failed(prove(cluster, **{"timeout-seconds": 3}))["size-1"]
    assert line.startswith("failed: ends by itself: size-1: queued")


def test_what_a_killed_run_left_is_removed_first_and_nothing_else() -> None:
    cluster = Machines()
    prove(cluster)
    left, theirs = copy.deepcopy(cluster.made[:2])
    theirs["metadata"]["labels"].pop("user.gpu-clusters.dev/gpu-clusters-proof")
    for pod in (left, theirs):
        pod["spec"]["containers"][0]["resources"]["requests"][GPU] = "0"
        cluster.put("pods", pod)
    with pytest.raises(AssertionError, match="something is left"):
        prove(cluster)
    assert [pod["metadata"]["name"] for pod in cluster.pods] == [theirs["metadata"]["name"]]


@pytest.mark.parametrize(
    ("options", "changes", "said"),
    [
        ({"token": "no.token.atall"}, {}, "401 A valid bearer token is needed"),
        ({"tenant": "nobody"}, {}, "403 The token's tenant has no tenancy here"),
        ({}, {"ready": False}, "its tenancy is not ready (QuotaNotEnforced)"),
        ({}, {"images": ["nvcr.io/nvidia"]}, "422 The tenancy does not allow this image"),
        ({}, {"sizes": []}, "the tenancy of acme allows nothing"),
    ],
)
def test_who_is_not_served_is_refused_with_what_the_api_says(
    options: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    cluster = Machines()
    cluster.put("tenancies", tenancy("acme", gpus=8, **changes))
    with pytest.raises(Refused, match=r"proof\.not-served") as refused:
        prove(cluster, **options)
    assert said in str(refused.value)
    assert cluster.made == []


def test_an_image_that_does_not_come_ends_the_proof_with_the_first_container() -> None:
    def unpulled(pod: dict[str, Any]) -> dict[str, Any]:
        waiting = {"waiting": {"reason": "ErrImagePull"}}
        containers = [{"name": "main", "state": waiting}]
        spec = {**pod["spec"], "schedulingGates": []}
        return {"spec": spec, "status": {"phase": "Pending", "containerStatuses": containers}}

    cluster = Machines(instead=unpulled)
    with pytest.raises(Refused, match="its image cannot be pulled"):
        prove(cluster)
    assert len(cluster.made) == 1
