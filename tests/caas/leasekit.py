"""A lease controller on a real API server or on one in this process, for one test."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from caas.cluster import Cluster, ClusterError, ConflictError
from caas.controllers import lease_book, lease_host, leases
from caas.controllers.leases import LeaseController, MakeEffects
from caas.settings import Settings
from gpuclusters.device_plugin.decide import HELD_BY_ANOTHER, KUBELET_AGREES
from gpuclusters.lease.model import GPU_LEASE, RECHECK_ANNOTATION, lease_name
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import NAMESPACE, NODE, POD
from lab.hosts import firmware
from lab.hosts.hardware import gpus
from lab.hosts.hardware.board import board
from tests.caas import fakehost
from tests.caas.fakecluster import FakeCluster, Server
from tests.caas.pods import contained
from tests.fixtures.hosts import SimulatedHost

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


def _has(lease: Lease, uid: str) -> bool:
    holder = (lease.get("status") or {}).get("holder") or {}
    return bool(holder.get("podUid") == uid and holder.get("admitted"))


def phase_is(phase: str, *modules: int) -> Callable[[dict[int, Lease]], bool]:
    return lambda leases: all(leases.get(m, {}).get("phase") == phase for m in modules)


@dataclass
class LeaseLab:
    """What a test does and sees."""

    cluster: Cluster
    settings: Settings
    namespace: str
    make_effects: MakeEffects
    running: asyncio.Task[None] | None = None
    controller: LeaseController | None = None

    async def start(self) -> None:
        """Start a controller; it knows nothing but what is stored."""
        # Tests that run at the same time share one API server, and each has machines of its own.
        self.controller = LeaseController(
            self.cluster, self.settings, self.make_effects, mine=lambda home: home == self.namespace
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

    async def delete(self, pod: dict[str, Any]) -> None:
        """The pod is gone, as when its node has ended it."""
        metadata = pod["metadata"]
        await self.cluster.delete(POD, metadata["name"], self.namespace, grace_seconds=0)

    async def _bodies(self) -> list[dict[str, Any]]:
        """The leases of the first host that have a status."""
        found = await self.cluster.list(GPU_LEASE)
        return [b for b in found if b["spec"]["node"] == self.host and b.get("status")]

    async def leases(self) -> dict[int, Lease]:
        """Status of each GPU's lease, by module."""
        return {body["spec"]["module"]: body["status"] for body in await self._bodies()}

    async def phases(self) -> dict[int, str]:
        """Phase of each GPU."""
        return {m: status["phase"] for m, status in sorted((await self.leases()).items())}

    async def until(self, holds: Callable[[dict[int, Lease]], bool]) -> None:
        """Wait until the leases of the first host are so."""
        await self._until(self.leases, holds)

    async def _until(
        self, look: Callable[[], Awaitable[Any]], holds: Callable[[Any], object]
    ) -> Any:
        """What is seen once it is so, beside a controller that must not break meanwhile."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not holds(found := await look()):
            if self.running is not None and self.running.done():
                self.running.result()
            late = asyncio.get_running_loop().time() > deadline
            assert not late, f"it did not happen in time: {found}"
            await asyncio.sleep(0.1)
        return found

    async def all_free(self) -> None:
        """Wait until every GPU is free."""
        await self.until(lambda x: len(x) == 8 and all(s["phase"] == "Free" for s in x.values()))

    async def admitted(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Wait until the pod's gate is open; the pod as it is then."""
        return await self.pod_when(pod, lambda p: not p["spec"].get("schedulingGates"))

    async def pod_when(self, pod: dict[str, Any], holds: Callable[[Any], object]) -> dict[str, Any]:
        """Wait until the pod, or None when it is gone, is so."""
        name = pod["metadata"]["name"]
        found: dict[str, Any] = await self._until(
            lambda: self.cluster.get(POD, name, self.namespace), holds
        )
        return found

    async def still_waits(self, pod: dict[str, Any]) -> None:
        """Nothing is set aside for the pod: by now the queue has looked at it."""
        await asyncio.sleep(1)
        await self.pod_when(pod, lambda p: p["spec"]["schedulingGates"])
        holders = [status.get("holder") or {} for status in (await self.leases()).values()]
        assert pod["metadata"]["uid"] not in [holder.get("podUid") for holder in holders]

    async def allocate(self, pod: dict[str, Any], *, allocated: bool = True) -> None:
        """What the device plugin does for the kubelet, which has pods that were admitted alone."""
        uid = pod["metadata"]["uid"]
        for body in await self._bodies():
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
    cluster: Any, settings: Settings, namespace: str, effects: MakeEffects
) -> AsyncIterator[LeaseLab]:
    """A running controller; everything is gone afterwards."""
    lab = LeaseLab(cluster, settings, namespace, effects)
    try:
        await lab.start()
        yield lab
    finally:
        await lab.clean()


@dataclass
class Memory:
    """A server and a machine in this process."""

    server: Server
    machines: fakehost.FakeHosts

    @property
    def machine(self) -> fakehost.FakeHost:
        return self.machines.by_name["h"]

    def node(self, ready: str = "True") -> None:
        """The only node; its condition Ready is so."""
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": _SINCE}
        self.server.state(NODE, "h", {"conditions": [condition]})


@asynccontextmanager
async def in_memory(
    monkeypatch: pytest.MonkeyPatch, **options: Any
) -> AsyncIterator[tuple[LeaseLab, Memory]]:
    """`running`, by the clock of the loop, with machines as good as new."""
    clock = SimpleNamespace(monotonic=asyncio.get_running_loop().time, time=time.time)
    for module in (leases, lease_book, lease_host):
        monkeypatch.setattr(module, "time", clock)
    memory = Memory(Server(), fakehost.FakeHosts())
    memory.server.state(NAMESPACE, "acme", {})
    memory.node()
    settings = settings_of([("h", None)], golden=fakehost.GOLDEN, **options)
    async with running(FakeCluster(memory.server), settings, "acme", memory.machines) as lab:
        yield lab, memory
