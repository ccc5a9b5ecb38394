"""Controllers that die at each of their steps: what a task does between two awaits, all tasks counted.

Every life of a controller is on a server and machines in this process, which go on without it: requests
and commands that were sent before its death are still carried out. What the next one finds is tried
once for each different state of the world.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from caas.controllers import leases
from caas.controllers.lease_host import Effects
from caas.controllers.tenancy import TenancyController
from caas.settings import Host, Settings
from gpuclusters.core.ports import ObjectKind
from gpuclusters.lease.board import Effect, Orders, Outcome
from gpuclusters.lease.model import EDGES, GPU_LEASE, Phase
from gpuclusters.tenancy import admission as admission_policy
from gpuclusters.tenancy import isolation, objects
from gpuclusters.tenancy import proof as tenancy_proof
from gpuclusters.tenancy.model import TENANCY, TenancySpec, tenancy_object
from gpuclusters.tenancy.programs import Accounts
from gpuclusters.tenancy.proof import PROVEN_POLICIES
from tests.caas.fakecluster import Body, FakeCluster, Server
from tests.caas.fakehost import GOLDEN, FakeHosts
from tests.caas.leasekit import settings_of
from tests.caas.loops import Life, LivingLoop
from tests.caas.pods import contained

PAIR = (1, 3)
PATIENCE_SECONDS = 120.0
"""Of a clock that runs only while nobody has anything to do."""
CHANGING = (
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "since",
    "deadline",
    "lastTransitionTime",
)


async def one_life(world: World, life: Life) -> bool:
    """Whether the story came to its end in this life."""
    async with life.of(world.controller()), asyncio.timeout(PATIENCE_SECONDS):
        while not life.dead.is_set():
            if world.turn():
                return True
            await asyncio.sleep(0.02)
    return False


def die_at_every_step(make: Callable[[], World]) -> tuple[int, int]:
    """How many steps a life has without a death, and how many different worlds deaths left behind."""
    tried: set[str] = set()

    async def story(steps: int) -> bool:
        world = make()
        if await one_life(world, Life(steps)):
            return True
        left = json.dumps([plain(list(world.server.objects.values())), world.state()], default=str)
        if left not in tried:
            tried.add(left)
            assert await one_life(world, Life())
        await world.server.quiet()
        return False

    for steps in range(1_000_000):
        with asyncio.Runner(loop_factory=LivingLoop) as runner:
            if runner.run(story(steps)):
                gc.collect()
                return steps, len(tried)
    raise AssertionError("it never ends")


def plain(value: Any) -> Any:
    """Objects without what is different each time."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in CHANGING}
    return [plain(one) for one in value] if isinstance(value, list) else value


class LeaseWorld:
    """Two GPUs, a pod that comes and goes, a kubelet with its plugin."""

    def __init__(self) -> None:
        self.server = Server()
        self.server.before_storing(self._look)
        self.machines = FakeHosts()
        self.settings = _two_gpus()
        self.deleted = False
        spec = {"tenant": "acme", "namespace": "acme"}
        ready = {"type": "Ready", "status": "True", "observedGeneration": 1}
        self.server.state(TENANCY, "acme", {"conditions": [ready]}, spec=spec)
        self.server.state(objects.NAMESPACE, "acme", {})
        self.server.state(objects.NODE, "h", {"conditions": [{"type": "Ready", "status": "True"}]})
        self.server.create(objects.POD, contained("acme", "c-1", 2))

    async def controller(self) -> None:
        cluster: Any = FakeCluster(self.server)
        controller = leases.LeaseController(cluster, self.settings, self._effects)
        await controller.run()

    def turn(self) -> bool:
        pod = self.server.get(objects.POD, "c-1", "acme")
        found = [body for body in self.server.of(GPU_LEASE) if body.get("status")]
        for body in found:
            holder, phase = body["status"].get("holder"), body["status"]["phase"]
            if not holder:
                continue
            gated = pod is None or pod["spec"].get("schedulingGates")
            if phase == "Leased" and holder["admitted"] and not holder["allocated"] and not gated:
                self._mark(body, allocated=True)
            elif phase == "Releasing" and holder["allocated"] and pod is None:
                self._mark(body, allocated=False)
        having = [b for b in found if (b["status"].get("holder") or {}).get("allocated")]
        if pod is not None and len(having) == len(PAIR):
            self._machine.use({body["spec"]["module"] for body in having})
            self.server.delete(objects.POD, "c-1", "acme", None)
            self.deleted = True
        free = [body for body in found if body["status"]["phase"] == "Free"]
        return self.deleted and len(free) == len(PAIR) and pod is None

    def state(self) -> object:
        machine = self.machines.by_name.get("h")
        seen = (sorted(machine.active), sorted(machine.level.items())) if machine else ()
        return seen, self.deleted

    @property
    def _machine(self) -> Any:
        return self.machines.by_name["h"]

    def _mark(self, body: Body, *, allocated: bool) -> None:
        patch = {"status": {"holder": {"allocated": allocated}}}
        self.server.change(GPU_LEASE, body, patch, status=True)

    def _effects(self, host: Host, orders: Orders) -> Effects:
        machine, server = self.machines(host, orders), self.server

        class Far:
            async def do(self, effect: Effect) -> Outcome:
                return await server.outlasting(machine.do(effect))  # type: ignore[no-any-return]

        return Far()

    def _look(self, kind: ObjectKind, before: Body | None, body: Body) -> None:
        """What may never happen, whoever writes it."""
        if kind == GPU_LEASE and body.get("status"):
            module, now = body["spec"]["module"], body["status"]["phase"]
            was = ((before or {}).get("status") or {}).get("phase", now)
            assert now == was or Phase(now) in EDGES[Phase(was)], f"{was} to {now}"
            assert now != "Quarantined", body["status"]["message"]
            if now in ("Free", "Leased"):
                assert self._machine.verified({module}) or now == was
            if now == "Leased" and was != "Leased":
                assert body["status"]["holder"]["partition"] in self._machine.active
        if kind == objects.POD and before is not None and not body["spec"].get("schedulingGates"):
            held = [lease["status"].get("holder") for lease in self.server.of(GPU_LEASE)]
            assert [h and h["podUid"] for h in held] == [body["metadata"]["uid"]] * len(PAIR)


class TenancyWorld:
    """A tenancy that is made, spoilt, changed and deleted; everybody who enforces something."""

    def __init__(self) -> None:
        self.server = Server()
        self.server.before_storing(self._look)
        self.server.refusal = _judged
        self.stage = "made"
        valid = {"conditions": [{"type": "Valid", "status": "True"}]}
        deny = {"spec": {"validationActions": ["Deny"]}}
        up = {"type": "NetworkUnavailable", "status": "False", "reason": "CiliumIsUp"}
        node = {"conditions": [{"type": "Ready", "status": "True"}, up]}
        self.server.state(objects.BASELINE_POLICY, isolation.BASELINE, valid)
        for name in PROVEN_POLICIES:
            self.server.state(objects.ADMISSION_POLICY, name, {"observedGeneration": 1})
            self.server.state(objects.ADMISSION_BINDING, name, {}, **deny)
        self.server.state(objects.RUNTIME_CLASS, "kata", {})
        self.server.state(objects.NODE, "h", node)
        leased = {"phase": "Leased", "holder": {"tenant": "acme"}}
        self.server.state(GPU_LEASE, "h-gpu1", leased, spec={"node": "h", "module": 1})
        self.server.create(TENANCY, tenancy_object(_acme()))

    async def controller(self) -> None:
        cluster: Any = FakeCluster(self.server)
        controller = TenancyController(cluster, isolation.Network(), Accounts())
        await controller.run()

    def turn(self) -> bool:
        self._enforce()
        tenancy = self.server.get(TENANCY, "acme")
        if tenancy is None:
            assert self.server.get(objects.NAMESPACE, "tenant-acme") is None
            return True
        if self.stage == "made" and tenancy_proof.ready(tenancy):
            self.stage = "changed"
            self.server.delete(objects.NETWORK_POLICY, isolation.POLICY, "tenant-acme", None)
            document = _acme(egress={"internet": True}).document()
            self.server.change(TENANCY, tenancy, {"spec": document}, status=False)
        elif self.stage == "changed" and tenancy_proof.ready(tenancy):
            self.stage = "deleted"
            self.server.delete(TENANCY, "acme", "", None)
        elif self.stage == "deleted" and self._awaits(tenancy, "Leased"):
            self.stage = "released"
            self._lease_is("Scrubbing", holder=None, lastTenant="acme")
        elif self.stage == "released" and self._awaits(tenancy, "Scrubbing"):
            self.stage = "scrubbed"
            self._lease_is("Free", lastTenant=None)
        return False

    def state(self) -> object:
        return self.stage

    def _awaits(self, tenancy: Body, phase: str) -> bool:
        """Whether it is said that its GPU is waited for, which is in this phase."""
        said = tenancy["status"]["conditions"][0]
        if said["message"] != f"GPUs are not yet scrubbed: h-gpu1 ({phase})":
            return False
        assert (said["reason"], said["status"]) == ("LeasesNotScrubbed", "False")
        assert tenancy["status"]["awaitedLeases"] == ["h-gpu1"]
        assert self.server.get(objects.NAMESPACE, "tenant-acme")
        return True

    def _lease_is(self, phase: str, **more: Any) -> None:
        lease = self.server.there(GPU_LEASE, "h-gpu1")
        self.server.change(GPU_LEASE, lease, {"status": {"phase": phase, **more}}, status=True)

    def _enforce(self) -> None:
        """The quota controller, Cilium's operator, whoever makes namespaces active."""
        valid = {"conditions": [{"type": "Valid", "status": "True"}]}
        for kind, status in (
            (objects.NAMESPACE, {"phase": "Active"}),
            (objects.NETWORK_POLICY, valid),
        ):
            for body in self.server.of(kind):
                if not body.get("status"):
                    _status(self.server, kind, body, status)
        for body in self.server.of(objects.RESOURCE_QUOTA):
            _status(self.server, objects.RESOURCE_QUOTA, body, {"hard": body["spec"]["hard"]})

    def _look(self, kind: ObjectKind, before: Body | None, body: Body) -> None:
        if kind == TENANCY and before is not None and tenancy_proof.ready(body):
            if "deletionTimestamp" in body["metadata"]:
                return
            policy = self.server.get(objects.NETWORK_POLICY, isolation.POLICY, "tenant-acme")
            if not tenancy_proof.ready(before):
                assert policy
                wanted = TenancySpec.model_validate(body["spec"]).egress
                assert policy["specs"] == isolation.network_policy(
                    wanted, isolation.Network(), "tenant-acme"
                )
                quota = self.server.get(objects.RESOURCE_QUOTA, "tenant", "tenant-acme")
                assert quota
                assert quota["status"]["hard"] == body["spec"]["quota"]["hard"]
        finalizers = body["metadata"].get("finalizers") or ()
        if kind == TENANCY and before is not None and not finalizers:
            assert self.server.get(objects.NAMESPACE, "tenant-acme") is None
            assert self.stage == "scrubbed"


def _judged(pod: Body) -> str | None:
    if pod["spec"].get("hostNetwork"):
        return 'violates PodSecurity "restricted:latest"'
    if "runtimeClassName" not in pod["spec"]:
        return f"ValidatingAdmissionPolicy '{admission_policy.POD_POLICY}' denied"
    return None


def _acme(**changes: Any) -> TenancySpec:
    hard = {"requests.nvidia.com/pgpu": "1", "pods": "1"}
    fields = {"tenant": "acme", "namespace": "tenant-acme", "gpus": 1, "quota": {"hard": hard}}
    limits = [{"type": "Container", "default": {"cpu": "1"}}]
    return TenancySpec.model_validate(
        fields | {"limits": limits, "runtimeClasses": ["kata"]} | changes
    )


@cache
def _two_gpus() -> Settings:
    settings = settings_of([("h", None)], golden=GOLDEN)
    (host,) = settings.hosts
    pair = [p.id for p in host.offered if set(p.modules) <= set(PAIR)]
    gpus = tuple(gpu for gpu in host.gpus if gpu.module in PAIR)
    host = host.model_copy(update={"gpus": gpus, "partitions": tuple(pair)})
    return settings.model_copy(update={"hosts": (host,)})


def _status(server: Server, kind: ObjectKind, body: Body, status: Body) -> None:
    server.change(kind, body, {"status": status}, status=True)


World = LeaseWorld | TenancyWorld
"""All that outlives a controller.

`controller` is another one, which knows nothing but what is stored; `turn`: everybody else does what is
theirs, and whether the story is at its end; `state`: what of it a controller could ever notice, beside the
objects.
"""


@pytest.mark.parametrize("make", [LeaseWorld, TenancyWorld])
def test_killed_at_every_await_the_next_one_brings_everything_to_its_end(
    make: Callable[[], World],
) -> None:
    steps, worlds = die_at_every_step(make)
    assert steps > 100
    assert worlds > 10


def test_two_controllers_at_once_lease_no_gpu_twice() -> None:
    """As when leadership failed to keep them apart."""

    async def story() -> None:
        world = LeaseWorld()
        async with Life().of(world.controller()) as other:
            assert await one_life(world, Life())
            assert not other.done()
        await world.server.quiet()

    with asyncio.Runner(loop_factory=LivingLoop) as runner:
        runner.run(story())


def test_a_writer_that_is_always_first_costs_another_try_and_nothing_else() -> None:
    async def story() -> None:
        world = LeaseWorld()
        replace = world.server.replace_status
        tries: Counter[str] = Counter()

        def disturbed(kind: ObjectKind, body: Body) -> Body:
            name = body["metadata"]["name"]
            tries[name] += 1
            if tries[name] % 3:
                live = world.server.get(kind, name)
                assert live
                noise = {"metadata": {"annotations": {"noise": str(tries[name])}}}
                world.server.change(kind, live, noise, status=False)
            return replace(kind, body)

        world.server.replace_status = disturbed  # type: ignore[method-assign]
        assert await one_life(world, Life())
        # Both GPUs, ten changes each.
        assert min(tries.values()) >= 30
        await world.server.quiet()

    with asyncio.Runner(loop_factory=LivingLoop) as runner:
        runner.run(story())
