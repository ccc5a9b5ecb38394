"""A lease controller on a real API server with simulated hosts, for one test."""

import asyncio
import contextlib
import copy
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from caas.cluster import Cluster, ClusterError, ConflictError, Event
from caas.controllers.leases import LeaseController, MakeEffects, effects_over_ssh, specs_of
from caas.settings import Settings
from gpuclusters.core.ports import ObjectKind
from gpuclusters.device_plugin.decide import HELD_BY_ANOTHER, KUBELET_AGREES
from gpuclusters.lease import model as lease_resource
from gpuclusters.lease.model import (
    GPU_LEASE,
    RECHECK_ANNOTATION,
    ConditionType,
    GPULeaseSpec,
    Phase,
    lease_name,
    lease_object,
)
from gpuclusters.tenancy import model as tenancy_resource
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import NODE, POD
from lab.hosts import firmware
from lab.hosts.hardware import gpus
from lab.hosts.hardware.board import board
from tests.caas.pods import contained
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import SimulatedHost

Objects = dict[str, dict[str, Any]]
"""By name."""


async def come(
    cluster: Cluster,
    kind: ObjectKind,
    holds: Callable[[Objects], bool],
    *,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    beside: asyncio.Task[None] | None = None,
) -> Objects:
    """The chosen objects as soon as they are so. Each change is looked at, however soon another follows.

    `beside` must not break meanwhile.
    """
    known: Objects = {}

    async def look() -> None:
        read = False
        async for change, body in cluster.watch(kind, namespace, labels, fields):
            if change == "SYNC":
                read = True
            elif change == "DELETED":
                known.pop(body["metadata"]["name"], None)
            else:
                known[body["metadata"]["name"]] = body
            if read and holds(known):
                return

    looking = asyncio.create_task(look())
    others = {beside} if beside is not None else set()
    try:
        await asyncio.wait(
            {looking, *others}, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if beside is not None and beside.done():
            beside.result()
        states = {name: body.get("status") for name, body in known.items()}
        assert looking.done(), f"it did not happen in time: {states}"
        looking.result()
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    return known


CRD = ObjectKind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
PGPU = "nvidia.com/pgpu"
PATIENCE_SECONDS = 150.0
"""How long a test waits for what must come; a busy machine takes its time."""
PHASES: dict[str, float] = dict.fromkeys(
    ("reserved", "activating", "admission", "releasing", "resetting", "scrubbing", "verifying"), 200
)
EVERY = tuple(range(15))
GOLDEN = {"versions": dict(firmware.GOLDEN), "knobs": dict(gpus.DEFAULT_KNOBS)}
Lease = dict[str, Any]
_SINCE = "2026-01-01T00:00:00Z"


def settings_of(
    named: Sequence[tuple[str, SimulatedHost | None]],
    *,
    partitions: Sequence[int] = EVERY,
    declared_layout: bool = False,
    phases: dict[str, float] | None = None,
    golden: dict[str, Any] = GOLDEN,
    start_deadline: float = 1380,
) -> Settings:
    """Settings of some hosts, each under a name of its own; None is one of this process alone."""
    if phases is None:
        phases = {}
    devices = sorted(board("supermicro-hgx-h100").gpus.items())
    entries = [
        {
            "name": name,
            **(_reached(host) if host else NOWHERE),
            "baseboard": "hgx-h100",
            "gpus": [
                {"module": module, "pci": device.address, "device": str(device.iommu_group)}
                for module, device in devices
            ],
            "partitions": tuple(partitions),
            "declared_layout": declared_layout,
            "fabric_manager": "127.0.0.1",
        }
        for name, host in named
    ]
    return Settings.model_validate(
        {
            "cluster": "test",
            "runtime_class": "kata-qemu-nvidia-gpu",
            "recycle_policy": "full",
            "phases": PHASES | phases,
            "start_deadline_seconds": start_deadline,
            "hosts": entries,
            "golden_firmware": golden,
            "api": {"issuer": "https://id.example.com"},
        }
    )


NOWHERE = {"address": "192.0.2.1", "user": "nobody", "host_key": "none"}


def _reached(host: SimulatedHost) -> dict[str, Any]:
    """How a simulated host and its management controller are reached."""
    endpoint, bmc = host.endpoint, host.endpoint.bmc
    return {
        "address": endpoint.address,
        "port": endpoint.port,
        "user": endpoint.user,
        "host_key": endpoint.host_key,
        "bmc": {"url": bmc.url, "user": bmc.user, "certificate": bmc.certificate},
    }


def unique(host: SimulatedHost) -> str:
    """A name that no other test's lease has: all share one API server."""
    return f"{host.name}-{secrets.token_hex(4)}"


def _on(*hosts: str) -> str:
    """The leases of these hosts, as a selector."""
    return f"kubernetes.io/hostname in ({','.join(hosts)})"


def _has(lease: dict[str, Any], uid: str) -> bool:
    holder = (lease.get("status") or {}).get("holder") or {}
    return bool(holder.get("podUid") == uid and holder.get("admitted"))


async def define(cluster: Cluster) -> None:
    """The kinds of our own exist and answer."""
    for crd in (lease_resource.crd(), tenancy_resource.crd()):
        await cluster.apply(CRD, crd, manager="tests")
    for kind in (GPU_LEASE, TENANCY):
        async for event in cluster.watch(kind):
            # Without metadata there is no such kind yet.
            if event.kind == "SYNC" and event.object["metadata"]:
                break


class Seen:
    """A cluster whose nodes are those of one test: they are Ready and stay so.

    In the API server, which all tests share, each would be one more that tenancies, DaemonSets and pods
    of other tests have to reckon with.
    """

    def __init__(self, cluster: Cluster, nodes: Iterable[str]) -> None:
        self._cluster = cluster
        self._nodes = nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def watch(self, kind: ObjectKind, *where: str, **chosen: str) -> AsyncIterator[Event]:
        """All but nodes from the API server."""
        return self._watch() if kind == NODE else self._cluster.watch(kind, *where, **chosen)

    async def _watch(self) -> AsyncIterator[Event]:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": _SINCE}
        items = [
            {
                "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "spec": {},
                "status": {"conditions": [dict(ready)]},
            }
            for name in self._nodes
        ]
        for body in items:
            yield Event("ADDED", copy.deepcopy(body))
        yield Event("SYNC", {"metadata": {"resourceVersion": "1"}, "items": items})
        await asyncio.Event().wait()


@dataclass
class LeaseLab:
    """What a test does and sees."""

    cluster: Cluster
    settings: Settings
    namespace: str
    make_effects: MakeEffects
    nodes: Sequence[str] | None = None
    """What the controller sees of nodes; None: those that the API server has."""
    running: asyncio.Task[None] | None = None
    controller: LeaseController | None = None

    async def start(self) -> None:
        """Start a controller; it knows nothing but what is stored."""
        # Tests that run at the same time share one API server, and each has machines of its own.
        seen: Any = self.cluster if self.nodes is None else Seen(self.cluster, self.nodes)
        self.controller = LeaseController(
            seen, self.settings, self.make_effects, mine=lambda home: home == self.namespace
        )
        self.running = asyncio.create_task(self.controller.run())

    async def stop(self) -> None:
        """Kill the controller wherever it is."""
        if self.running is not None:
            self.running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.running
            self.running = None

    @property
    def host(self) -> str:
        return self.settings.hosts[0].name

    async def free(self) -> None:
        """Leases of GPUs that have been through their first cycle."""
        specs = [spec for host in self.settings.hosts for spec in specs_of(host)]
        await asyncio.gather(*(self._free(spec) for spec in specs))

    async def _free(self, spec: GPULeaseSpec) -> None:
        body = await self.cluster.create(GPU_LEASE, lease_object(spec))
        proof = {"status": "True", "reason": "Shown", "lastTransitionTime": _SINCE}
        shown = [{"type": kind.value, **proof} for kind in ConditionType]
        for phase in (Phase.RESETTING, Phase.SCRUBBING, Phase.VERIFYING, Phase.FREE):
            conditions = [] if phase is Phase.RESETTING else shown
            status = {"phase": phase.value, "since": _SINCE, "cycle": 1, "conditions": conditions}
            body = await self.cluster.replace_status(GPU_LEASE, {**body, "status": status})

    async def tenant(self, name: str = "", *, ready: bool = True) -> str:
        """A tenancy of the test's namespace."""
        tenant = name or f"t-{secrets.token_hex(4)}"
        spec = {"tenant": tenant, "namespace": self.namespace}
        quota = {"hard": {f"requests.{PGPU}": "100"}}
        body = {
            "apiVersion": TENANCY.api_version,
            "kind": TENANCY.kind,
            "metadata": {"name": tenant},
            "spec": {**spec, "gpus": 100, "quota": quota},
        }
        made = await self.cluster.create(TENANCY, body)
        await self.say_ready(made, ready)
        return tenant

    async def say_ready(self, tenancy: dict[str, Any], ready: bool) -> None:
        """What the Tenancy controller would say."""
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "Test",
            "observedGeneration": tenancy["metadata"]["generation"],
            "lastTransitionTime": _SINCE,
        }
        status = {"conditions": [condition]}
        await self.cluster.patch(
            TENANCY, tenancy["metadata"]["name"], "", {"status": status}, subresource="status"
        )

    async def pod(self, tenant: str, size: int) -> dict[str, Any]:
        """A request for GPUs."""
        name = f"c-{secrets.token_hex(6)}"
        body = contained(tenant, name, size)
        body["metadata"]["namespace"] = self.namespace
        # Namespace and node have no runtime class.
        del body["spec"]["runtimeClassName"]
        return await self.cluster.create(POD, body)

    async def place(self, pod: dict[str, Any]) -> None:
        """What the scheduler does: the pod is its node's from now on, whose kubelet has to end it."""
        name = pod["metadata"]["name"]
        binding = ObjectKind("", "v1", f"pods/{name}/binding", "Binding", True)
        metadata = {"name": name, "namespace": self.namespace}
        target = {"apiVersion": "v1", "kind": "Node", "name": self.host}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self.cluster.create(binding, body)

    async def delete(self, pod: dict[str, Any]) -> None:
        """The pod is gone, as when its node has ended it."""
        metadata = pod["metadata"]
        await self.cluster.delete(POD, metadata["name"], self.namespace, grace_seconds=0)

    async def leases(self) -> dict[int, Lease]:
        """Status of each GPU's lease, by module."""
        found = await self.cluster.list(GPU_LEASE, labels=_on(self.host))
        return {b["spec"]["module"]: b["status"] for b in found if b.get("status")}

    async def phases(self) -> dict[int, str]:
        """Phase of each GPU."""
        return {m: status["phase"] for m, status in sorted((await self.leases()).items())}

    async def until(self, holds: Callable[[dict[int, Lease]], bool]) -> None:
        """Wait until the leases of the first host are so."""

        def so(found: Objects) -> bool:
            leases = found.values()
            return holds({b["spec"]["module"]: b["status"] for b in leases if b.get("status")})

        await come(self.cluster, GPU_LEASE, so, labels=_on(self.host), beside=self.running)

    async def all_free(self) -> None:
        """Wait until every GPU is free."""
        await self.until(lambda x: len(x) == 8 and all(s["phase"] == "Free" for s in x.values()))

    async def admitted(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Wait until the pod's gate is open; the pod as it is then."""
        return await self.pod_when(pod, lambda p: not p["spec"].get("schedulingGates"))

    async def pod_when(
        self, pod: dict[str, Any], holds: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any]:
        """Wait until the pod is so; the pod as it is then. It must not go meanwhile."""
        name = pod["metadata"]["name"]

        def so(pods: dict[str, dict[str, Any]]) -> bool:
            assert name in pods, f"{name} was deleted"
            return holds(pods[name])

        pods = await come(
            self.cluster,
            POD,
            so,
            namespace=self.namespace,
            fields=f"metadata.name={name}",
            beside=self.running,
        )
        return pods[name]

    async def allocate(self, pod: dict[str, Any], *, allocated: bool = True) -> None:
        """What the device plugin does for the kubelet, which has pods that were admitted alone."""
        uid = pod["metadata"]["uid"]
        hosts = [host.name for host in self.settings.hosts]
        for body in await self.cluster.list(GPU_LEASE, labels=_on(*hosts)):
            while _has(body, uid):
                body["status"]["holder"]["allocated"] = allocated
                try:
                    await self.cluster.replace_status(GPU_LEASE, body)
                    break
                except ConflictError:
                    body = await self.cluster.get(GPU_LEASE, body["metadata"]["name"]) or {}

    async def dispute(self, module: int, *, disputed: bool = True) -> None:
        """What the device plugin says when the kubelet has given the GPU to another pod."""
        condition = {
            "type": KUBELET_AGREES,
            "status": "False" if disputed else "True",
            "reason": HELD_BY_ANOTHER if disputed else "Agrees",
        }
        while True:
            body = await self.cluster.get(GPU_LEASE, lease_name(self.host, module)) or {}
            others = [c for c in body["status"]["conditions"] if c["type"] != KUBELET_AGREES]
            body["status"]["conditions"] = [*others, condition]
            with contextlib.suppress(ConflictError):
                await self.cluster.replace_status(GPU_LEASE, body)
                return

    async def recheck(self, module: int, value: str = "") -> None:
        """What an operator does."""
        patch = {"metadata": {"annotations": {RECHECK_ANNOTATION: value or secrets.token_hex(4)}}}
        await self.cluster.patch(GPU_LEASE, lease_name(self.host, module), "", patch)

    async def clean(self) -> None:
        """Take away what is not in the namespace."""
        await self.stop()
        for host in self.settings.hosts:
            names = [lease_name(host.name, gpu.module) for gpu in host.gpus]
            await asyncio.gather(*(self.cluster.delete(GPU_LEASE, name) for name in names))
        for body in await self.cluster.list(TENANCY):
            if body["spec"]["namespace"] == self.namespace:
                with contextlib.suppress(ClusterError):
                    await self.cluster.delete(TENANCY, body["metadata"]["name"])


@asynccontextmanager
async def running(
    kube_api: KubeCluster,
    settings: Settings,
    namespace: str,
    effects: MakeEffects,
    nodes: Sequence[str] | None,
    *,
    free: bool = False,
) -> AsyncIterator[LeaseLab]:
    """A running controller; everything is gone afterwards."""
    async with Cluster(kube_api.kubeconfig) as cluster:
        await define(cluster)
        lab = LeaseLab(cluster, settings, namespace, effects, nodes)
        try:
            if free:
                await lab.free()
            await lab.start()
            yield lab
        finally:
            await lab.clean()


@asynccontextmanager
async def lease_lab(
    kube_api: KubeCluster,
    namespace: str,
    hosts: Sequence[SimulatedHost],
    *,
    wrap: Callable[[MakeEffects], MakeEffects] = lambda make: make,
    free: bool = False,
    node: str = "",
    **options: Any,
) -> AsyncIterator[LeaseLab]:
    """`running`, of these hosts.

    Their GPUs are new, or `free`: made so before the controller looks, by somebody who knows that
    simulated machines have had no tenant. Their nodes are this test's own, as `lab.nodes` says, unless
    the only one is a `node` that the API server has.
    """
    settings = settings_of([(node or unique(host), host) for host in hosts], **options)
    key = hosts[0].client_key.read_text()
    effects = wrap(effects_over_ssh(key, lambda: hosts[0].endpoint.bmc.password))
    nodes = None if node else [host.name for host in settings.hosts]
    async with running(kube_api, settings, namespace, effects, nodes, free=free) as lab:
        yield lab
