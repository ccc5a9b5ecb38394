"""One host's leases, driven: what is decided is stored and done; killed at any moment only memory is lost."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from caas.cluster import Cluster, ClusterError, ConflictError, NotFoundError
from caas.controllers.controller import all_of, heard
from caas.controllers.lease_book import LeaseBook, LeaseReport
from caas.controllers.lease_pods import do_to_pod, pod_of
from gpuclusters.lease.board import (
    AdmitPod,
    Board,
    ClearMemory,
    DeletePod,
    Effect,
    Failed,
    FindPod,
    Lease,
    NodeLost,
    Orders,
    Outcome,
    Pod,
    PodState,
    ReadFirmware,
    ReadKnobs,
    Refused,
    Reset,
    Succeeded,
    holds,
)
from gpuclusters.lease.decide import decide
from gpuclusters.lease.holding import reserve
from gpuclusters.lease.model import GPU_LEASE, GPULeaseSpec, Holder, lease_name, lease_object
from gpuclusters.lease.placement import BoardView
from gpuclusters.lease.plan import Change

EFFECT_SECONDS = 90.0
"""The longest that an effect may take, if its phase sets no other time."""
LONGEST_PAUSE_SECONDS = 5.0
TRIES = 4
"""How often a change is stored anew where only what it is not about was changed meanwhile."""
IDLE_SECONDS = 300.0
_LOG = logging.getLogger(__name__)

Fence = Callable[[], None]


class Effects(Protocol):
    """Does effects; every failure is an outcome."""

    async def do(self, effect: Effect) -> Outcome:
        """Do it, and say how it ended."""


class HostLeases:
    """The task of one host. `observe` and the like may be called at any time from the same loop."""

    def __init__(
        self,
        orders: Orders,
        gpus: Sequence[GPULeaseSpec],
        cluster: Cluster,
        host: Effects,
        report: LeaseReport,
        *,
        changed: Callable[[], None] = lambda: None,
        fence: Fence = lambda: None,
    ) -> None:
        self._orders, self._gpus = orders, {gpu.module: gpu for gpu in gpus}
        self._cluster, self._host, self._report = cluster, host, report
        self._changed, self._fence = changed, fence
        self._book = LeaseBook(orders.limits)
        self._board = Board(orders)
        self._bodies: dict[str, Mapping[str, Any]] = {}
        self._grants: list[tuple[Holder, Mapping[str, Any], asyncio.Future[bool]]] = []
        self._missing = set(self._gpus)
        self._news = asyncio.Event()

    @property
    def leases(self) -> Mapping[int, Lease]:
        return self._board.leases

    @property
    def serves(self) -> bool:
        return self._board.serves

    def view(self) -> BoardView:
        """What placement may use: partitions that the fabric manager does not offer are left out."""
        offered = self._orders.offered
        if (reading := self._board.reading) is not None:
            offered = tuple(p for p in offered if p.id in reading.seen.supported)
        phases = {module: lease.phase for module, lease in self._board.leases.items()}
        return BoardView.of(self._orders.host, offered, phases)

    def holds(self, uid: str) -> bool:
        return any(holds(lease, uid) for lease in self._board.leases.values())

    def observe(self, body: dict[str, Any]) -> None:
        spec = GPULeaseSpec.model_validate(body["spec"])
        if self._gpus.get(spec.module) != spec:
            said = "%s is another GPU than the settings say; delete it when nothing uses it"
            _LOG.error(said, body["metadata"]["name"])
            return
        lease = self._book.offer(body, time.monotonic())
        if lease is not None:
            self._missing.discard(spec.module)
            self._accept(lease)
        elif not body.get("status"):
            self._missing.add(spec.module)
        self._news.set()

    def forget(self, body: Mapping[str, Any]) -> None:
        """A lease was deleted; it will be made again, and its GPU begins anew."""
        module = int(body["spec"]["module"])
        known = self._book.body(module)
        if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
            self._lost(module)

    def observe_pod(self, body: Mapping[str, Any]) -> None:
        self._bodies[body["metadata"]["uid"]] = body
        self._board = self._board.with_pod(pod_of(body))
        self._news.set()

    def forget_pod(self, uid: str) -> None:
        """The pod is not in the API any more."""
        self._bodies.pop(uid, None)
        self._board = self._board.with_pod(Pod(uid, PodState.GONE))
        self._news.set()

    def booted(self) -> None:
        """The machine has booted anew."""
        self._board = self._board.after_boot()
        self._news.set()

    def away(self, message: str | None) -> None:
        """The node is lost, as the message says; None: it is there, and serves once it has answered."""
        before, now = self._board.away, None
        if message is not None:
            now = NodeLost(time.monotonic() if before is None else before.since, message)
        if now != before:
            self._board = self._board.with_away(now)
            self._news.set()

    async def grant(self, holder: Holder, pod: Mapping[str, Any]) -> bool:
        """Reserve a partition for a waiting pod; whether all of its GPUs are reserved."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._grants.append((holder, pod, done))
        self._news.set()
        return await done

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                await self._work(group)
        finally:
            self._report.close()
            for _, _, done in self._grants:
                done.cancel()

    async def _work(self, group: asyncio.TaskGroup) -> None:
        failures = 0
        while True:
            self._news.clear()
            try:
                if self._missing:
                    await self._make()
                await self._reserve()
                plan = decide(self._board, time.monotonic())
                await self._store(plan.changes)
                failures = 0
                if plan.changes:
                    continue
            except ClusterError as error:
                failures += 1
                pause = min(0.1 * 2.0**failures, LONGEST_PAUSE_SECONDS)
                _LOG.warning("leases of %s wait: %s", self._orders.host, error)
                await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311
                continue
            for effect in plan.effects:
                self._fence()
                self._board = self._board.asked(effect)
                group.create_task(self._do(effect), name=f"{self._orders.host}: {effect}")
            wait = IDLE_SECONDS if plan.wake is None else max(0.0, plan.wake - time.monotonic())
            await heard(self._news, min(wait, IDLE_SECONDS))

    async def _make(self) -> None:
        """Make leases that are not there, and give those without a status their first."""
        for module in sorted(self._missing):
            spec = self._gpus[module]
            body = await self._cluster.get(GPU_LEASE, lease_name(spec.node, module))
            if body is None:
                self._fence()
                try:
                    body = await self._cluster.create(GPU_LEASE, lease_object(spec))
                except ConflictError:
                    continue
            if GPULeaseSpec.model_validate(body["spec"]) != spec:
                self._missing.discard(module)
            elif not body.get("status"):
                self._fence()
                body = await self._cluster.replace_status(GPU_LEASE, self._book.first(body))
            self.observe(body)

    async def _reserve(self) -> None:
        while self._grants:
            holder, pod, done = self._grants.pop(0)
            stored = False
            try:
                self._board = self._board.with_pod(pod_of(pod))
                self._bodies[holder.pod_uid] = pod
                changes = reserve(self._board, holder, time.monotonic())
                stored = bool(changes) and await self._store(changes)
            finally:
                if not done.done():
                    done.set_result(stored)

    async def _store(self, changes: Sequence[Change]) -> bool:
        """Store all changes at once; whether each was stored. Of those that were not, read what is."""
        if not changes:
            return True
        self._fence()
        # Before anything else can happen: what is stored must be what was decided about.
        now = time.monotonic()
        bodies = [self._book.next(change, now) for change in changes]
        swaps = [self._swap(change, body) for change, body in zip(changes, bodies, strict=True)]
        return all(await all_of(swaps))

    async def _swap(self, change: Change, body: dict[str, Any]) -> bool:
        module = change.before.module
        for attempt in range(1, TRIES + 1):
            try:
                body = await self._cluster.replace_status(GPU_LEASE, body)
                break
            except ConflictError:
                await self._read(module)
                # Who wrote only what nothing was decided about (a label, say) must not be in the way.
                if attempt == TRIES or self._board.leases.get(module) != change.before:
                    return False
                self._fence()
                body = self._book.next(change, time.monotonic())
            except NotFoundError:
                self._lost(module)
                return False
        self.observe(body)
        self._report.changed(change, body)
        self._changed()
        return True

    async def _read(self, module: int) -> None:
        body = await self._cluster.get(GPU_LEASE, lease_name(self._orders.host, module))
        if body is None:
            self._lost(module)
        else:
            self.observe(body)

    async def _do(self, effect: Effect) -> None:
        seconds = self._seconds(effect)
        try:
            async with asyncio.timeout(seconds):
                if isinstance(effect, FindPod | AdmitPod | DeletePod):
                    outcome = await do_to_pod(self._cluster, effect)
                else:
                    outcome = await self._host.do(effect)
        except TimeoutError:
            outcome = Failed(effect, f"no answer within {seconds:g} s")
        served = self._board.serves
        self._board = self._board.learnt(outcome, time.monotonic())
        if self._board.serves is not served:
            self._changed()
        match outcome:
            case Refused(message=message) | Failed(message=message):
                _LOG.warning("%s: %s: %s", self._orders.host, type(effect).__name__, message)
            case Succeeded(AdmitPod(uid=uid, lease=lease)) if uid in self._bodies:
                let_go = self._board.pods.get(uid)
                if let_go is not None and let_go.lease == lease:
                    gpus = sum(holds(one, uid) for one in self._board.leases.values())
                    self._report.admitted(self._bodies[uid], lease, gpus)
            case Succeeded(DeletePod(uid=uid, name=name, why=why)) if uid in self._bodies:
                _LOG.warning("%s: deleted pod %s: %s", self._orders.host, name, why)
        self._news.set()

    def _seconds(self, effect: Effect) -> float:
        match effect:
            case Reset():
                return self._orders.limits.resetting
            case ClearMemory():
                return self._orders.limits.scrubbing
            case ReadFirmware() | ReadKnobs():
                return self._orders.limits.verifying
        return EFFECT_SECONDS

    def _accept(self, lease: Lease) -> None:
        before = self._board.leases.get(lease.module)
        self._board = self._board.with_lease(lease)
        self._report.seen(lease.module, lease.phase)
        if before is None or before.phase is not lease.phase:
            self._drop_pods()
            self._changed()

    def _lost(self, module: int) -> None:
        self._book.forget(module)
        self._board = self._board.without_lease(module)
        self._missing.add(module)
        self._report.seen(module, None)
        self._news.set()

    def _drop_pods(self) -> None:
        """Pods without leases here are nobody's business here."""
        for uid in list(self._board.pods):
            if not self.holds(uid):
                self._board = self._board.without_pod(uid)
                self._bodies.pop(uid, None)
