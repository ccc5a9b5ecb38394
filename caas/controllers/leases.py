"""The GPULease controller: one task per host, a queue over all of them, and their place in the operator."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from caas import metrics
from caas.cluster import Cluster, seconds_of
from caas.controllers.controller import Recorder, heard
from caas.controllers.host_effects import HostEffects, SshHost
from caas.controllers.lease_book import LeaseReport
from caas.controllers.lease_host import Effects, Fence, HostLeases
from caas.controllers.lease_pods import BootTimes, LateStarts, gpus_of, is_gated
from caas.controllers.redfish import Redfish
from caas.mirror import Mirror
from caas.settings import Host, Settings
from gpuclusters.container_api.container import CONTAINER_LABEL
from gpuclusters.lease import placement
from gpuclusters.lease.board import Orders
from gpuclusters.lease.model import GPU_LEASE, HELD, GPULeaseSpec, Holder
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import NODE, POD
from gpuclusters.tenancy.proof import ready

LOOK_AGAIN_SECONDS = 5.0
"""How soon the queue is looked at again when nothing happens: patience runs out by time alone."""
LONGEST_REST_SECONDS = 1.0
REST = 3.0
"""How long to rest after a look, in times of what it took: a look goes over all GPUs."""
_LOG = logging.getLogger(__name__)

Object = Mapping[str, Any]


class LeaseQueue:
    """Pods behind the gate of the leases, by their Tenancy as last seen, on nodes that serve."""

    def __init__(
        self,
        hosts: Mapping[str, HostLeases],
        tenancy: Callable[[str], Object | None],
        recorder: Recorder,
        gpu_resource: str,
        serves: Callable[[str], bool] = lambda _node: True,
    ) -> None:
        self._hosts, self._tenancy, self._serves = hosts, tenancy, serves
        self._recorder, self._resource = recorder, gpu_resource
        self._pods: dict[str, Object] = {}
        self._refused: dict[str, str] = {}
        self._granting: dict[str, placement.Grant] = {}
        """By pod: what is not stored yet, and is nobody else's any more."""
        self._tenants: set[str] = set()
        self._news = asyncio.Event()

    def observe(self, body: Object) -> None:
        uid = body["metadata"]["uid"]
        if is_gated(body) and not body["metadata"].get("deletionTimestamp"):
            self._pods[uid] = body
            self._news.set()
        else:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None:
            self._refused.pop(uid, None)
            self._news.set()

    def look(self) -> None:
        """GPUs or tenancies have changed."""
        self._news.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                began = time.monotonic()
                for grant in self.turns():
                    uid = grant.request.uid
                    self._granting[uid] = grant
                    group.create_task(self._grant(grant, self._pods[uid]))
                rest = REST * (time.monotonic() - began)
                await asyncio.sleep(min(rest, LONGEST_REST_SECONDS))
                await heard(self._news, LOOK_AGAIN_SECONDS if self._pods else None)

    def turns(self) -> tuple[placement.Grant, ...]:
        leases = [lease for host in self._hosts.values() for lease in host.leases.values()]
        having = {lease.holder.pod_uid for lease in leases if lease.holder}
        holding = Counter(
            lease.holder.tenant for lease in leases if lease.holder and lease.phase in HELD
        )
        for uid, grant in self._granting.items():
            if uid not in having:
                holding[grant.request.tenant] += grant.request.size
        waiting = [
            request
            for uid, body in self._pods.items()
            if uid not in having and uid not in self._granting
            if (request := self._request(uid, body)) is not None
        ]
        boards = self._boards()
        self._count(waiting, boards)
        if not waiting:
            return ()
        # On a node that is out of service a pod would get its GPUs and then never be placed.
        serving = [board for board in boards if self._serves(board.host)]
        return placement.schedule(waiting, holding, serving, now=time.time()).grants

    def _boards(self) -> list[placement.BoardView]:
        """The boards as they will be once what is being granted is stored."""
        # Until then those GPUs look free, and who places by that cuts a board in pieces.
        given: dict[str, set[int]] = {}
        for grant in self._granting.values():
            placed = grant.placement
            given.setdefault(placed.host, set()).update(placed.partition.modules)
        return [
            host.view().without(frozenset(given.get(name, ())))
            for name, host in self._hosts.items()
        ]

    def _request(self, uid: str, body: Object) -> placement.Waiting | None:
        metadata = body["metadata"]
        tenant = (metadata.get("labels") or {}).get(TENANT_LABEL, "")
        size = gpus_of(body, self._resource)
        if why := self._why_not(metadata["namespace"], tenant, size):
            if self._refused.get(uid) != why:
                self._refused[uid] = why
                self._recorder.note(body, "NotQueued", "Queue", why, "Warning")
            return None
        self._refused.pop(uid, None)
        return placement.Waiting(uid, tenant, size, seconds_of(metadata["creationTimestamp"]))

    def _why_not(self, namespace: str, tenant: str, size: int) -> str:
        tenancy = self._tenancy(tenant) if tenant else None
        if tenancy is None or tenancy["spec"]["namespace"] != namespace:
            return "the namespace is not that of the tenant whom the pod names"
        if tenancy["metadata"].get("deletionTimestamp") or not ready(tenancy):
            return f"the isolation of tenant {tenant} is not enforced yet"
        if size < 1:
            return f"the pod does not ask for a whole number of {self._resource}"
        return ""

    async def _grant(self, grant: placement.Grant, body: Object) -> None:
        partition = grant.placement.partition
        metadata = body["metadata"]
        holder = Holder(
            tenant=grant.request.tenant,
            namespace=metadata["namespace"],
            pod=metadata["name"],
            pod_uid=metadata["uid"],
            container=(metadata.get("labels") or {}).get(CONTAINER_LABEL, "")[:63],
            partition=partition.id,
            gpus=partition.modules,
        )
        try:
            stored = await self._hosts[grant.placement.host].grant(holder, body)
            if stored:
                note = f"{partition.size} GPU{'s' if partition.size > 1 else ''} reserved"
                self._recorder.note(body, "Reserved", "Reserve", note)
        except asyncio.CancelledError:
            # Of the host's task, when that begins anew: the pod waits on. Of this one: it ends.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
        finally:
            self._granting.pop(grant.request.uid, None)
            self._news.set()

    def _count(self, waiting: list[placement.Waiting], boards: list[placement.BoardView]) -> None:
        for (size, state), count in placement.partition_states(boards, self._serves).items():
            metrics.CAPACITY_PARTITIONS.labels(str(size), state).set(count)
        counts = Counter(request.tenant for request in waiting)
        self._tenants |= set(counts)
        for tenant in self._tenants:
            metrics.QUEUE_PODS.labels(tenant).set(counts[tenant])
        oldest = min((request.since for request in waiting), default=None)
        metrics.QUEUE_WAIT_SECONDS.set(0 if oldest is None else max(0, time.time() - oldest))


AGAIN_SECONDS = 5.0

MakeEffects = Callable[[Host, Orders], Effects]


class LeaseController:
    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        make_effects: MakeEffects,
        *,
        identity: str = "",
        fence: Fence = lambda: None,
        mine: Callable[[str], bool] = lambda _namespace: True,
    ) -> None:
        """`fence` raises if this program must not act; `mine` says whether it serves a namespace's pods."""
        self._mine, self._cluster, self._fence = mine, cluster, fence
        self._recorder = Recorder(cluster, identity or "controllers")
        self._hosts: dict[str, HostLeases] = {}
        self._pods = Mirror(POD, changed=self._pod_changed, labels=TENANT_LABEL)
        self._leases = Mirror(GPU_LEASE, changed=self._lease_changed)
        self._tenancies = Mirror(TENANCY, changed=lambda _body: self._queue.look())
        self._nodes = Mirror(NODE, changed=self._node_changed)
        self._outages: dict[str, placement.Outage] = {}
        self._queue = LeaseQueue(
            self._hosts, self._tenancies.get, self._recorder, settings.gpu_resource, self.serves
        )
        self._boot_ids: dict[str, str] = {}
        self._boots = BootTimes(settings.gpu_resource)
        deadline = settings.start_deadline_seconds
        self._late = LateStarts(cluster, self._recorder, deadline, fence=fence)
        self._config = {host.name: host for host in settings.hosts}
        self._orders = {host.name: orders_of(host, settings) for host in settings.hosts}
        self._effects = {
            host.name: make_effects(host, self._orders[host.name]) for host in settings.hosts
        }
        self._hosts |= {host.name: self._new(host) for host in settings.hosts}

    @property
    def hosts(self) -> Mapping[str, HostLeases]:
        return self._hosts

    def serves(self, node: str) -> bool:
        """Whether pods may be placed on a node; on none before it is known which nodes are there."""
        known = self._nodes.synced.is_set()
        return known and node not in self._outages and self._hosts[node].serves

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._recorder.run(), name="events")
                for mirror in (self._leases, self._pods, self._tenancies, self._nodes):
                    group.create_task(mirror.follow(self._cluster), name=mirror.kind.plural)
                # What becomes of a GPU depends on whether its node is there.
                await self._nodes.synced.wait()
                self._look_at_nodes()
                for name in self._config:
                    group.create_task(self._host(name), name=f"leases of {name}")
                group.create_task(self._queue.run(), name="queue")
                group.create_task(self._late.run(), name="late starts")
        finally:
            await self._recorder.flush(0)
            for effects in self._effects.values():
                if isinstance(effects, HostEffects):
                    await effects.close()

    async def _host(self, name: str) -> None:
        while True:
            try:
                await self._hosts[name].run()
            except Exception:  # noqa: BLE001  (nothing that breaks here may stop the others)
                _LOG.exception("the leases of %s begin anew", name)
                await asyncio.sleep(AGAIN_SECONDS)
                self._hosts[name] = self._new(self._config[name])
                self._tell_of_node(name)
                for body in self._leases.all():
                    if body["spec"]["node"] == name:
                        self._hosts[name].observe(body)

    def _new(self, host: Host) -> HostLeases:
        return HostLeases(
            self._orders[host.name],
            specs_of(host),
            self._cluster,
            self._effects[host.name],
            LeaseReport(host.name, self._recorder),
            changed=self._queue.look,
            fence=self._fence,
        )

    def _lease_changed(self, body: dict[str, Any]) -> None:
        host = self._hosts.get(body["spec"]["node"])
        if host is None:
            return
        there = self._leases.get(body["metadata"]["name"])
        if there is None or there["metadata"]["uid"] != body["metadata"]["uid"]:
            host.forget(body)
        else:
            host.observe(body)

    def _node_changed(self, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        boot = ((body.get("status") or {}).get("nodeInfo") or {}).get("bootID", "")
        if boot and name in self._hosts and self._boot_ids.setdefault(name, boot) != boot:
            self._boot_ids[name] = boot
            self._hosts[name].booted()
        # Until all have been seen, one that was not yet seen is not a node that is gone.
        if self._nodes.synced.is_set():
            self._look_at_nodes()

    def _look_at_nodes(self) -> None:
        now = placement.outages(self._hosts, self._nodes.within())
        if now == self._outages:
            return
        before, self._outages = self._outages, now
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) == now.get(name):
                continue
            said = now[name].message if name in now else f"{name} is back in service"
            _LOG.warning("node: %s", said)
            self._tell_of_node(name)
        self._queue.look()

    def _tell_of_node(self, name: str) -> None:
        outage = self._outages.get(name)
        self._hosts[name].away(outage.message if outage is not None and outage.lost else None)

    def _pod_changed(self, body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        if not self._mine(metadata["namespace"]):
            return
        there = self._pods.get(metadata["name"], metadata["namespace"])
        gone = there is None or there["metadata"]["uid"] != metadata["uid"]
        for watcher in (self._queue, self._boots, self._late):
            if gone:
                watcher.forget(metadata["uid"])
            else:
                watcher.observe(body)
        for host in self._hosts.values():
            if host.holds(metadata["uid"]):
                if gone:
                    host.forget_pod(metadata["uid"])
                else:
                    host.observe_pod(body)


def orders_of(host: Host, settings: Settings) -> Orders:
    """What the machine of one host is told to obey."""
    return Orders(
        host=host.name,
        partitions={p.id: p.modules for p in host.partition_table.partitions},
        offered=host.offered,
        keep_active=host.declared_layout,
        policy=settings.recycle_policy,
        golden=settings.golden_firmware,
        limits=settings.phases,
    )


def specs_of(host: Host) -> list[GPULeaseSpec]:
    return [GPULeaseSpec(node=host.name, **gpu.model_dump()) for gpu in host.gpus]


def effects_over_ssh(private_key: str, bmc_password: Callable[[], str]) -> MakeEffects:
    """Effects on real machines over SSH; the BMC's password is asked only if a host has one."""

    def make(host: Host, orders: Orders) -> Effects:
        redfish = None
        if host.bmc is not None:
            redfish = Redfish(host.bmc.url, host.bmc.user, bmc_password(), host.bmc.certificate)
        return HostEffects(host, orders, SshHost(host, private_key), redfish)

    return make
