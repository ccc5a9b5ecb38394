"""Brings the objects that isolate each tenant to what its Tenancy says, and says what is enforced."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from caas.cluster import Cluster, ClusterError
from caas.controllers import tenancy_deletion
from caas.controllers.events import Recorder
from caas.controllers.tenancy_children import Children
from caas.controllers.tenancy_gauges import Gauges
from caas.controllers.tenancy_mirror import Object
from caas.controllers.tenancy_patience import Patience
from caas.controllers.tenancy_queue import Failed, WorkQueue
from caas.controllers.tenancy_trials import Trier
from caas.controllers.tenancy_view import TenancyView
from gpuclusters.tenancy import proof as tenancy_proof
from gpuclusters.tenancy.isolation import Network
from gpuclusters.tenancy.model import FINALIZER, TENANCY, TenancySpec
from gpuclusters.tenancy.programs import Accounts
from gpuclusters.tenancy.proof import NOT_TRIED, Proof, prove

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
"""So many trials in a row have to fail before the status of what was not ready yet speaks of it."""
REPORTER = "gpu-clusters.dev/tenancies"
"""Whom events about tenancies name."""

_log = logging.getLogger(__name__)


class TenancyController:
    """Works on whatever tenancy it is told of; `run` it as long as this program leads."""

    def __init__(
        self, cluster: Cluster, network: Network, accounts: Accounts, identity: str = ""
    ) -> None:
        self._cluster = cluster
        self._tenancies: dict[str, Object] = {}
        self._ending: set[str] = set()
        self._trier = Trier(cluster)
        self._patience = Patience()
        self._recorder = Recorder(cluster, identity or "controllers", REPORTER)
        self._queue = WorkQueue(self._reconcile, workers=WORKERS, begun_at_once=BEGUN_AT_ONCE)
        self._view = TenancyView(self._concerns, self._everybody, self._leaving)
        self._children = Children(cluster, self._view, network, accounts, MANAGER)
        self._gauges = Gauges()

    def observe(self, body: Object) -> None:
        """A Tenancy was made or changed."""
        name = body["metadata"]["name"]
        known = self._tenancies.get(name)
        if known and _older(body, known):
            return
        self._remember(body)
        # A change of the status is our own, as a rule.
        if known is None or _asked(known) != _asked(body):
            self._gauges.asked(body)
            self._queue.add(name, new=known is None)

    def forget(self, name: str) -> None:
        """A Tenancy is gone."""
        self._tenancies.pop(name, None)
        self._ending.discard(name)
        self._trier.forget(name)
        self._patience.forget(name)
        self._gauges.forget(name)
        self._queue.settled(name)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._recorder.run())
                group.create_task(self._view.follow(self._cluster))
                await self._view.synced()
                group.create_task(self._queue.run())
        finally:
            self._gauges.clear()

    def _concerns(self, tenant: str) -> None:
        if tenant in self._tenancies:
            self._queue.add(tenant)

    def _everybody(self) -> None:
        for name in self._tenancies:
            self._queue.add(name)

    def _leaving(self) -> None:
        for name in self._ending:
            self._queue.add(name)

    async def _reconcile(self, name: str) -> float | None:
        tenancy = self._tenancies.get(name)
        if tenancy is None:
            return None
        try:
            return await self._settle(name, tenancy)
        except ClusterError as error:
            if error.status == 404 and await self._cluster.get(TENANCY, name) is None:
                self.forget(name)
                return None
            # A conflict means that what was read is old: the watch brings the new one.
            if error.status != 409:
                await self._say_failed(name, error)
            raise Failed(str(error)) from error

    async def _settle(self, name: str, tenancy: Object) -> float | None:
        try:
            spec = TenancySpec.model_validate(tenancy["spec"])
        except ValidationError as error:
            faults = "; ".join(
                f"spec.{'.'.join(map(str, f['loc']))}: {f['msg']}" for f in error.errors()
            )
            await self._say(tenancy, [self._not_ready(tenancy, "Invalid", faults)])
            return None
        if tenancy["metadata"].get("deletionTimestamp"):
            return await self._leave(spec, tenancy)
        if FINALIZER not in (tenancy["metadata"].get("finalizers") or ()):
            tenancy = await self._keep(tenancy)
        self._patience.begin(tenancy)
        fault = await self._children.ensure(spec, (tenancy.get("status") or {}).get("namespaceUid"))
        proofs = [Proof("namespace", fault)] if fault else await self._proofs(spec, tenancy)
        silent = self._silent(name, proofs)
        if silent is not None:
            return silent
        await self._judge(name, spec, proofs)
        if fault:
            return 30.0
        if all(proof.holds for proof in proofs):
            return RESYNC_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311
        return RETRIAL_SECONDS if _only_trials(proofs) else None

    def _silent(self, name: str, proofs: list[Proof]) -> float | None:
        """When to look again, if what was not ready yet lacks only what others are just about to do."""
        missing = {proof.fault.code for proof in proofs if proof.fault}
        known = self._tenancies.get(name)
        if not missing or known is None or tenancy_proof.ready(known):
            return None
        if missing <= {"tenancy.not-observed", "tenancy.not-active", NOT_TRIED}:
            left = WAITING_SECONDS - self._patience.waited(name)
            return left if left > 0 else None
        if _only_trials(proofs) and self._trier.failures(name) < SILENT_TRIALS:
            return RETRIAL_SECONDS
        return None

    async def _proofs(self, spec: TenancySpec, tenancy: Object) -> list[Proof]:
        home = self._view.namespaces.get(spec.namespace)
        key = (
            tenancy["metadata"]["uid"],
            tenancy["metadata"]["generation"],
            home["metadata"]["uid"] if home else None,
            self._view.rules_version(),
        )
        known = self._trier.known(spec.tenant, key)
        proofs = prove(spec, self._view.evidence(spec, known))
        if known or any(proof.fault and proof.fault.code != NOT_TRIED for proof in proofs):
            return list(proofs)
        trials = await self._trier.ask(spec)
        proofs = prove(spec, self._view.evidence(spec, trials))
        if all(proof.holds for proof in proofs):
            self._trier.proved(spec.tenant, key, trials)
        elif _only_trials(proofs):
            self._trier.failed(spec.tenant, key)
        return list(proofs)

    async def _keep(self, tenancy: Object) -> Object:
        """Put our finalizer on it, before there is anything to clear up."""
        metadata = tenancy["metadata"]
        patch = {
            "metadata": {
                # Of this very object, as it was read: the list of finalizers is replaced.
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
                "finalizers": [*(metadata.get("finalizers") or ()), FINALIZER],
            }
        }
        kept = await self._cluster.patch(TENANCY, metadata["name"], "", patch)
        self._take(kept)
        return kept

    async def _leave(self, spec: TenancySpec, tenancy: Object) -> float | None:
        waiting = await tenancy_deletion.step(
            self._cluster, self._view, self._children, spec, tenancy
        )
        if waiting is None:
            return None
        extra = {"awaitedLeases": list(waiting.leases)}
        said = self._not_ready(tenancy, waiting.reason, waiting.message)
        await self._say(tenancy, [said], **extra)
        return waiting.again

    async def _judge(self, name: str, spec: TenancySpec, proofs: list[Proof]) -> None:
        tenancy = self._tenancies.get(name)
        if tenancy is None:
            return
        new = tenancy_proof.conditions(proofs, tenancy["metadata"]["generation"])
        home = self._view.namespaces.get(spec.namespace)
        extra = {"namespaceUid": home["metadata"]["uid"]} if home else {}
        await self._say(tenancy, new, **extra)

    async def _say_failed(self, name: str, error: ClusterError) -> None:
        tenancy = self._tenancies.get(name)
        if tenancy is None or error.status == 0:
            return
        try:
            said = self._not_ready(tenancy, error.reason or "Failed", str(error))
            await self._say(tenancy, [said])
        except ClusterError as again:
            _log.warning("%s: its status cannot be written either: %s", name, again)

    @staticmethod
    def _not_ready(tenancy: Object, reason: str, message: str) -> tenancy_proof.Condition:
        return tenancy_proof.not_ready(reason, message, tenancy["metadata"]["generation"])

    async def _say(
        self, tenancy: Object, said: list[tenancy_proof.Condition], **extra: Any
    ) -> None:
        """Write the status if it says something new."""
        self._queue.settled(tenancy["metadata"]["name"])
        old = tenancy.get("status") or {}
        conditions = tenancy_proof.merged(said, old.get("conditions") or (), _now())
        new = {
            "observedGeneration": tenancy["metadata"]["generation"],
            "conditions": conditions,
            **extra,
        }
        self._gauges.judged(tenancy, ready=conditions[0]["status"] == "True")
        if all(old.get(key) == value for key, value in new.items()):
            return
        patch = {"metadata": {"uid": tenancy["metadata"]["uid"]}, "status": new}
        name = tenancy["metadata"]["name"]
        written = await self._cluster.patch(TENANCY, name, "", patch, subresource="status")
        self._take(written)
        if news := tenancy_proof.news(tenancy, written):
            self._recorder.note(
                written, reason=news.reason, action="Judge", note=news.note, kind=news.kind
            )

    def _remember(self, body: Object) -> None:
        name = body["metadata"]["name"]
        self._tenancies[name] = body
        if body["metadata"].get("deletionTimestamp"):
            self._ending.add(name)
        else:
            self._ending.discard(name)

    def _take(self, body: Object) -> None:
        name = body["metadata"]["name"]
        known = self._tenancies.get(name)
        if known and not _older(body, known):
            # What was asked for may be newer than what is being worked on.
            if known["metadata"]["generation"] != body["metadata"]["generation"]:
                self._queue.add(name)
            self._remember(body)


def _only_trials(proofs: Sequence[Proof]) -> bool:
    """What comes by a watch is not asked for again; what the server's admission says is."""
    tried = {"pod-security", "admission-policy", "allowed-pod"}
    missing = [proof for proof in proofs if proof.fault and proof.fault.code != NOT_TRIED]
    return bool(missing) and all(proof.name in tried for proof in missing)


def _older(one: Object, other: Object) -> bool:
    mine, its = one["metadata"], other["metadata"]
    same = bool(mine["uid"] == its["uid"])
    return same and int(mine["resourceVersion"]) < int(its["resourceVersion"])


def _asked(body: Object) -> tuple[Any, ...]:
    metadata = body["metadata"]
    finalized = FINALIZER in (metadata.get("finalizers") or ())
    return metadata["uid"], metadata["generation"], metadata.get("deletionTimestamp"), finalized


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
