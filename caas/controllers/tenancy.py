"""Brings the objects that isolate each tenant to what its Tenancy says, and says what is enforced."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from caas import metrics
from caas.cluster import Cluster, ClusterError, Object, stamp, version_of
from caas.controllers.controller import Failed, Recorder, WorkQueue
from caas.controllers.tenancy_children import Children, TenancyView, Tried, tried
from caas.mirror import Mirror
from gpuclusters.tenancy import proof as tenancy_proof
from gpuclusters.tenancy.isolation import Network
from gpuclusters.tenancy.model import FINALIZER, TENANCY, TenancySpec
from gpuclusters.tenancy.objects import NAMESPACE
from gpuclusters.tenancy.on_demand import OnDemand, on_demand
from gpuclusters.tenancy.programs import Accounts
from gpuclusters.tenancy.proof import NOT_TRIED, Condition, Proof, prove

WORKERS = 12
"""Tenancies that are worked on at once; each makes up to ten requests at once."""
BEGUN_AT_ONCE = 16
"""New tenancies that are begun and not judged yet."""
MANAGER = "gpu-clusters-tenancy"
"""Field manager of everything that the controller writes."""
RESYNC_SECONDS = 600.0
"""How often pods are tried again where nothing seems to have changed."""
WAITING_SECONDS = 10.0
"""How long what comes by itself as a rule is waited for before the status speaks of it."""
RETRIAL_SECONDS = 0.3
"""Policies reach the server's admission within some seconds."""
SILENT_TRIALS = 4
"""So many dry runs in a row have to fail before the status of what was not ready yet speaks of it."""
FOREIGN_SECONDS = 30.0
"""How often a namespace that cannot be the tenant's is looked at again."""
RESTART_SECONDS = 1.0
REPORTER = "gpu-clusters.dev/tenancies"
"""Whom events about tenancies name."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Progress:
    """One tenancy as it was last seen, and how far the work on it has come."""

    body: Object
    tried: Tried = field(default_factory=Tried)
    ready: bool | None = None
    """As it was last judged."""
    _asked: tuple[int, float] = (0, 0.0)
    _begun: tuple[object, float] = (None, 0.0)

    def asked(self) -> None:
        """It was made or its spec changed."""
        generation = self.body["metadata"]["generation"]
        if not tenancy_proof.ready(self.body) and self._asked[0] != generation:
            self._asked = generation, time.monotonic()

    def judged(self, generation: int, *, ready: bool) -> None:
        """It was found ready or not as of a generation."""
        self.ready = ready
        asked, since = self._asked
        if ready and asked == generation:
            metrics.TENANCY_READY_SECONDS.observe(time.monotonic() - since)
            self._asked = 0, 0.0

    def waited(self) -> float:
        """Seconds since it was first looked at as it is asked for now; of a thousand some are begun late."""
        metadata = self.body["metadata"]
        asked = metadata["uid"], metadata["generation"]
        if self._begun[0] != asked:
            self._begun = asked, time.monotonic()
        return time.monotonic() - self._begun[1]


class TenancyController:
    """Works on whatever tenancy it is told of; `run` it as long as this program leads."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        accounts: Accounts,
        identity: str = "",
        on_demand: OnDemand | None = None,
        mine: Callable[[str], bool] = lambda _name: True,
    ) -> None:
        """`mine` says whether it works on a tenancy."""
        self._cluster, self._mine, self._on_demand = cluster, mine, on_demand
        self._tenancies = Mirror(TENANCY, changed=self._tenancy_changed)
        self._known: dict[str, Progress] = {}
        self._recorder = Recorder(cluster, identity or "controllers", REPORTER)
        self._queue = WorkQueue(self._reconcile, workers=WORKERS, begun_at_once=BEGUN_AT_ONCE)
        self._view = TenancyView(self._concerns, self._everybody, self._leaving)
        self._children = Children(cluster, self._view, network, accounts, MANAGER)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tenancies.follow(self._cluster))
            group.create_task(self._work())

    def _tenancy_changed(self, body: Object) -> None:
        name = body["metadata"]["name"]
        if not self._mine(name):
            return
        if self._tenancies.get(name) is None:
            self._forget(name)
            return
        known = self._known.get(name)
        if known and _older(body, known.body):
            return
        # A change of the status is our own, as a rule.
        asked = known is None or _asked(known.body) != _asked(body)
        if known is None:
            known = self._known[name] = Progress(body)
            self._queue.add(name, new=True)
        elif asked:
            self._queue.add(name)
        known.body = body
        if asked:
            known.asked()

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        self._show()
        self._queue.settled(name)

    async def _work(self) -> None:
        """Work until cancelled; after a fault of our own it begins again, or tenancies stay unattended."""
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._recorder.run())
                    group.create_task(self._view.follow(self._cluster))
                    await self._view.synced()
                    group.create_task(self._queue.run())
            except Exception:  # noqa: BLE001 - whatever it was, somebody has to go on
                _log.exception("tenancies: unexpected failure; beginning again")
                await asyncio.sleep(RESTART_SECONDS)
            finally:
                metrics.TENANCIES.clear()

    def _concerns(self, tenant: str) -> None:
        if tenant in self._known:
            self._queue.add(tenant)

    def _everybody(self) -> None:
        for name in self._known:
            self._queue.add(name)

    def _leaving(self) -> None:
        for name, known in self._known.items():
            if known.body["metadata"].get("deletionTimestamp"):
                self._queue.add(name)

    def _show(self) -> None:
        judged = [known.ready for known in self._known.values()]
        for ready in (True, False):
            metrics.TENANCIES.labels(str(ready).lower()).set(judged.count(ready))

    async def _reconcile(self, name: str) -> float | None:
        known = self._known.get(name)
        if known is None:
            return None
        try:
            return await self._settle(name, known)
        except ClusterError as error:
            if error.status == 404 and await self._cluster.get(TENANCY, name) is None:
                self._forget(name)
                return None
            # A conflict means that what was read is old: the watch brings the new one.
            if error.status != 409:
                await self._say_failed(name, error)
            raise Failed(str(error)) from error

    async def _settle(self, name: str, known: Progress) -> float | None:
        tenancy = known.body
        try:
            spec = TenancySpec.model_validate(tenancy["spec"])
        except ValidationError as error:
            faults = "; ".join(
                f"spec.{'.'.join(map(str, f['loc']))}: {f['msg']}" for f in error.errors()
            )
            await self._say(tenancy, [_not_ready(tenancy, "Invalid", faults)])
            return None
        if tenancy["metadata"].get("deletionTimestamp"):
            waiting = await self._children.remove(spec, tenancy)
            if waiting is None:
                return None
            said = _not_ready(tenancy, waiting.reason, waiting.message)
            await self._say(tenancy, [said], awaitedLeases=list(waiting.leases))
            return waiting.again
        if self._is_one_too_many(name):
            full = "there are as many tenancies on demand as tenants-on-demand.most allows"
            await self._say(tenancy, [_not_ready(tenancy, "TooMany", full)])
            return FOREIGN_SECONDS
        if FINALIZER not in (tenancy["metadata"].get("finalizers") or ()):
            # Before there is anything to clear up.
            finalizers = [*(tenancy["metadata"].get("finalizers") or ()), FINALIZER]
            tenancy = await self._children.finalized(tenancy, finalizers)
            self._take(tenancy)
        known.waited()
        fault = await self._children.ensure(spec, (tenancy.get("status") or {}).get("namespaceUid"))
        proofs = [Proof("namespace", fault)] if fault else await self._proofs(spec, known, tenancy)
        if (silent := _silent(known, proofs)) is not None:
            return silent
        # What is known by now may be newer than what was worked on.
        new = tenancy_proof.conditions(proofs, known.body["metadata"]["generation"])
        home = self._view.get(NAMESPACE, spec.namespace)
        extra = {"namespaceUid": home["metadata"]["uid"]} if home else {}
        if self._known.get(name) is known:
            await self._say(known.body, new, **extra)
        if fault:
            return FOREIGN_SECONDS
        if all(proof.holds for proof in proofs):
            return RESYNC_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311
        return RETRIAL_SECONDS if _only_dry_runs(proofs) else None

    def _is_one_too_many(self, name: str) -> bool:
        """Whether it was made on demand when there was no room any more, by copies of the API at once."""
        most = self._on_demand.most if self._on_demand else None
        names = [one["metadata"]["name"] for one in on_demand(self._tenancies.all())]
        return most is not None and name in names[most:]

    async def _proofs(self, spec: TenancySpec, known: Progress, tenancy: Object) -> Sequence[Proof]:
        home = self._view.get(NAMESPACE, spec.namespace)
        key = (
            tenancy["metadata"]["uid"],
            tenancy["metadata"]["generation"],
            home["metadata"]["uid"] if home else None,
            self._view.rules_version(),
        )
        dry_runs = known.tried.of(key)
        proofs = prove(spec, self._view, dry_runs)
        if dry_runs or any(proof.fault and proof.fault.code != NOT_TRIED for proof in proofs):
            return proofs
        dry_runs = await tried(self._cluster, spec)
        proofs = prove(spec, self._view, dry_runs)
        if all(proof.holds for proof in proofs):
            known.tried = Tried(key, dry_runs)
        elif _only_dry_runs(proofs):
            failures = known.tried.failures if known.tried.key == key else 0
            known.tried = Tried(key, failures=failures + 1)
        return proofs

    async def _say_failed(self, name: str, error: ClusterError) -> None:
        known = self._known.get(name)
        if known is None or error.status == 0:
            return
        try:
            said = _not_ready(known.body, error.reason or "Failed", str(error))
            await self._say(known.body, [said])
        except ClusterError as again:
            _log.warning("%s: its status cannot be written either: %s", name, again)

    async def _say(self, tenancy: Object, said: list[Condition], **extra: Any) -> None:
        name = tenancy["metadata"]["name"]
        self._queue.settled(name)
        old = tenancy.get("status") or {}
        now = stamp(timespec="seconds")
        conditions = tenancy_proof.merged(said, old.get("conditions") or (), now)
        generation = tenancy["metadata"]["generation"]
        new = {"observedGeneration": generation, "conditions": conditions, **extra}
        if known := self._known.get(name):
            known.judged(generation, ready=conditions[0]["status"] == "True")
            self._show()
        if all(old.get(key) == value for key, value in new.items()):
            return
        patch = {"metadata": {"uid": tenancy["metadata"]["uid"]}, "status": new}
        written = await self._cluster.patch(TENANCY, name, "", patch, subresource="status")
        self._take(written)
        if news := tenancy_proof.news(tenancy, written):
            self._recorder.note(written, news.reason, "Judge", news.note, news.kind)

    def _take(self, body: Object) -> None:
        known = self._known.get(body["metadata"]["name"])
        if known and not _older(body, known.body):
            # What was asked for may be newer than what is being worked on.
            if known.body["metadata"]["generation"] != body["metadata"]["generation"]:
                self._queue.add(body["metadata"]["name"])
            known.body = body


def _silent(known: Progress, proofs: Sequence[Proof]) -> float | None:
    """When to look again, if what was not ready yet lacks only what others are just about to do."""
    missing = {proof.fault.code for proof in proofs if proof.fault}
    if not missing or tenancy_proof.ready(known.body):
        return None
    if missing <= {"tenancy.not-observed", "tenancy.not-active", NOT_TRIED}:
        left = WAITING_SECONDS - known.waited()
        return left if left > 0 else None
    if _only_dry_runs(proofs) and known.tried.failures < SILENT_TRIALS:
        return RETRIAL_SECONDS
    return None


def _not_ready(tenancy: Object, reason: str, message: str) -> Condition:
    return tenancy_proof.not_ready(reason, message, tenancy["metadata"]["generation"])


def _only_dry_runs(proofs: Sequence[Proof]) -> bool:
    """What comes by a watch is not asked for again; what the server's admission says is."""
    by_dry_run = {"pod-security", "admission-policy", "allowed-pod"}
    missing = [proof for proof in proofs if proof.fault and proof.fault.code != NOT_TRIED]
    return bool(missing) and all(proof.name in by_dry_run for proof in missing)


def _older(one: Object, other: Object) -> bool:
    same = bool(one["metadata"]["uid"] == other["metadata"]["uid"])
    return same and version_of(one) < version_of(other)


def _asked(body: Object) -> tuple[Any, ...]:
    metadata = body["metadata"]
    finalized = FINALIZER in (metadata.get("finalizers") or ())
    return metadata["uid"], metadata["generation"], metadata.get("deletionTimestamp"), finalized
