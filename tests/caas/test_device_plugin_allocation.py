"""A GPU is never in two answers: many requests at once, plugins that are restarted, two plugins at work."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caas.cluster import ClusterError, ConflictError
from caas.device_plugin.leases import Leases, MarkError
from caas.device_plugin.plugin import Kubelet, Pace, Plugin
from caas.settings import Gpu, Host
from gpuclusters.core.ports import ObjectKind
from gpuclusters.device_plugin.decide import Grant, Refusal
from gpuclusters.fabric.table import TABLES, Baseboard
from gpuclusters.lease.model import GPU_LEASE, GPULeaseSpec, lease_object
from tests.caas.fakecluster import Body, FakeCluster
from tests.caas.loops import in_loop

TABLE = TABLES[Baseboard.HGX_H100]
SINCE = "2026-11-21T10:00:00Z"
HOST = Host(
    name="hgx-01", address="127.0.0.1", user="u", host_key="k", baseboard=Baseboard.HGX_H100,
    gpus=tuple(Gpu(module=m, pci=f"0000:{m:02x}:00.0", device=str(10 + m)) for m in range(1, 9)),
    partitions=tuple(p.id for p in TABLE.partitions), fabric_manager="127.0.0.1",
)  # fmt: skip


class LeaseCluster(FakeCluster):
    """Leases in the API server of this process, with delays and faults."""

    def __init__(self, rng: random.Random | None = None) -> None:
        super().__init__()
        self.rng = rng
        self.down = False
        self.lose_answers = 0.0
        for gpu in HOST.gpus:
            spec = GPULeaseSpec(node=HOST.name, module=gpu.module, pci=gpu.pci, device=gpu.device)
            self.server.create(GPU_LEASE, lease_object(spec))
            self.write(gpu.module, phase="Free", since=SINCE, cycle=1)

    def write(self, *modules: int, **status: Any) -> None:
        """What the lease controller writes of these GPUs."""
        for module in modules:
            live = self.server.there(GPU_LEASE, f"hgx-01-gpu{module}")
            self.server.change(GPU_LEASE, live, {"status": status}, status=True)

    def lease(self, partition: int, pod: str, *, admitted: bool = True) -> None:
        """Lease a partition to a pod."""
        gpus = TABLE.partition(partition).modules
        holder = {
            "tenant": "a", "namespace": "t-a", "pod": pod, "podUid": f"uid-{pod}", "container": pod,
            "partition": partition, "gpus": list(gpus), "admitted": admitted, "allocated": False,
        }  # fmt: skip
        self.write(*gpus, phase="Leased", holder=holder)

    def status(self, module: int) -> dict[str, Any]:
        return dict(self.server.there(GPU_LEASE, f"hgx-01-gpu{module}")["status"])

    def allocated(self) -> set[int]:
        held = {gpu.module: self.status(gpu.module).get("holder") or {} for gpu in HOST.gpus}
        return {module for module, holder in held.items() if holder.get("allocated")}

    async def ask(self, call: str, work: Callable[[], Any]) -> Any:
        if self.down and call in ("list", "replace"):
            raise ClusterError("API server fake did not answer", reason="Unreachable")
        await self._pause()
        answer = await super().ask(call, work)
        if call == "replace" and self.rng and self.rng.random() < self.lose_answers:
            # As the real client: the answer was lost, the repetition meets what the first had written.
            raise ConflictError("the object has been modified", status=409, reason="Conflict")
        await self._pause()
        return answer

    async def _pause(self) -> None:
        for _ in range(self.rng.randint(0, 3) if self.rng else 0):
            await asyncio.sleep(0)


def plugin(cluster: LeaseCluster, clock: Any = lambda: 0.0, **pace: float) -> Plugin:
    return Plugin(
        cluster,  # type: ignore[arg-type]
        HOST,
        Kubelet(device_plugins=Path("/nowhere"), pod_resources=Path("/nowhere/s")),
        resource="nvidia.com/pgpu",
        cdi_kind="nvidia.com/pgpu",
        pace=Pace(**pace),
        clock=clock,
    )


async def ask(cluster: LeaseCluster, *devices: str) -> Grant | Refusal:
    made = plugin(cluster)
    return await made.leases.mark(made.board(), devices)


def test_a_mark_that_fails_takes_the_others_back() -> None:
    cluster = LeaseCluster()
    cluster.lease(1, "p")

    def refuse(_kind: ObjectKind, _before: Body | None, body: Body) -> None:
        if body["metadata"]["name"] == "hgx-01-gpu3":
            raise ClusterError("API server fake did not answer", reason="Unreachable")

    cluster.server.before_storing(refuse)
    with pytest.raises(MarkError, match="could not be marked"):
        asyncio.run(ask(cluster, "11", "12", "13", "14"))
    assert cluster.allocated() == set()


def test_a_mark_that_cannot_be_taken_back_stays() -> None:
    cluster = LeaseCluster()
    cluster.lease(3, "p")

    def last(*_: object) -> None:
        cluster.down = True

    cluster.server.before_storing(last)
    with pytest.raises(MarkError):
        asyncio.run(ask(cluster, "11", "13"))
    # Whoever reads the leases afterwards must take the GPU for given away.
    assert cluster.allocated() == {1}


def test_a_lease_that_somebody_else_touches_is_marked_all_the_same() -> None:
    touched: list[str] = []

    class Touched(LeaseCluster):
        async def ask(self, call: str, work: Callable[[], Any]) -> Any:
            if call == "replace" and not touched:
                touched.append(call)
                self.write(1, 3, message="something else")
            return await super().ask(call, work)

    cluster = Touched()
    cluster.lease(3, "p")
    assert isinstance(asyncio.run(ask(cluster, "11", "13")), Grant)
    assert cluster.allocated() == {1, 3}
    assert touched


def test_an_api_server_that_hangs_gives_nothing() -> None:
    class Hangs(LeaseCluster):
        async def ask(self, *_: object) -> None:
            await asyncio.sleep(60)

    async def act() -> None:
        leases = Leases(Hangs(), HOST, 0.05, lambda: 0.0, lambda: None)  # type: ignore[arg-type]
        await leases.mark(plugin(LeaseCluster()).board(), ["11"])

    with pytest.raises(ClusterError, match="did not answer in"):
        asyncio.run(act())


WANTED = [("11", "13"), ("12", "14"), ("11", "12", "13", "14"), ("15",), ("11",), ("13", "11")]


@pytest.mark.parametrize("seed", range(40))
@in_loop
async def test_many_requests_two_plugins_and_restarts_never_give_a_gpu_twice(seed: int) -> None:
    """Each request is made by one of two plugins; some are cut off midway as by a kill."""
    rng = random.Random(seed)
    cluster = LeaseCluster(rng)
    cluster.lose_answers = rng.choice([0.0, 0.2])
    cluster.lease(3, "two")
    cluster.lease(4, "pair")
    cluster.lease(11, "one")
    answers: list[tuple[str, ...]] = []

    async def request(made: Plugin, devices: tuple[str, ...]) -> None:
        try:
            answer = await made.leases.mark(made.board(), devices)
        except (MarkError, ClusterError):
            return
        if isinstance(answer, Grant):
            answers.append(tuple(device.device for device in answer.devices))

    async def disturb() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
            cluster.write(rng.randint(1, 8), message=f"{rng.random()}")

    plugins = [plugin(cluster), plugin(cluster)]
    tasks = []
    for _ in range(30):
        if rng.random() < 0.2:
            plugins[rng.randrange(2)] = plugin(cluster)
        made = plugins[rng.randrange(2)]
        tasks.append(asyncio.create_task(request(made, rng.choice(WANTED))))
        if rng.random() < 0.3:
            await asyncio.sleep(0)
            rng.choice(tasks).cancel()
    tasks.append(asyncio.create_task(disturb()))
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [one for one in ended if isinstance(one, Exception)]
    assert not failed, f"requests end with an answer or are cut off: {failed}"
    given = [device for answer in answers for device in answer]
    assert len(given) == len(set(given)), f"a GPU is in two answers: {answers}"
    assert {int(device) - 10 for device in given} <= cluster.allocated()


@pytest.mark.parametrize("partition", [1, 3])
def test_of_two_requests_for_the_same_gpus_one_is_granted(partition: int) -> None:
    modules = TABLE.partition(partition).modules

    async def granted(cluster: LeaseCluster) -> int:
        both = (ask(cluster, *(str(10 + module) for module in modules)) for _ in range(2))
        answers = await asyncio.gather(*both, return_exceptions=True)
        return sum(isinstance(answer, Grant) for answer in answers)

    for seed in range(20):
        cluster = LeaseCluster(random.Random(seed))
        cluster.lease(partition, "p")
        assert asyncio.run(granted(cluster)) == 1
        assert cluster.allocated() == set(modules)
