"""Leases beside a controller: one story on a real API server and machine, the others in this process."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from caas.api.store import Store
from caas.cluster import Cluster
from caas.controllers.host_effects import MARKS
from caas.controllers.leases import effects_over_ssh
from gpuclusters.container_api.container import LEASE_ANNOTATION
from gpuclusters.lease.board import Effect, Failed, Outcome, ReadFirmware, Succeeded
from gpuclusters.lease.placement import Why
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import POD
from lab.hosts import faults
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware import gpus, tenant
from lab.hosts.hardware.board import board
from tests.caas.leasekit import (
    PATIENCE_SECONDS,
    Lease,
    LeaseLab,
    Memory,
    in_memory,
    phase_is,
    running,
    settings_of,
)
from tests.caas.loops import QuickLoop
from tests.caas.readynode import ready_node
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.tenancies import Request
from tests.fixtures.waiting import comes

EVERY = range(1, 9)


def marks(host: SimulatedHost) -> set[str]:
    """Addresses of the GPUs that leases have, as the machine says."""
    folder = host.path(MARKS)
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def pci_of(module: int) -> str:
    return board("supermicro-hgx-h100").gpus[module].address


@pytest.mark.lab
def test_a_machine_serves_with_its_sound_gpus_and_finds_out_what_tenants_do(
    kube_api: KubeCluster, namespace: str, hosts: Hosts, lease_api: Request
) -> None:
    (host,) = hosts()
    host.inject(faults.ResetNotSupported(module=1), faults.MemoryNotCleared(module=2))

    async def beside_a_controller(name: str, silent: Any) -> None:
        settings = settings_of([(name, host)])
        effects = effects_over_ssh(host.client_key.read_text(), lambda: host.endpoint.bmc.password)
        async with (
            Cluster(kube_api.kubeconfig) as cluster,
            running(cluster, settings, namespace, effects) as lab,
        ):
            await story(lab, silent)

    async def story(lab: LeaseLab, silent: Any) -> None:
        await lab.until(phase_is("Quarantined", 1, 2))
        await lab.until(phase_is("Free", *range(3, 9)))
        leases = await lab.leases()
        assert (leases[1]["reason"], leases[2]["reason"]) == ("ResetFailed", "MemoryNotCleared")
        assert "memory_clear_finished" in leases[2]["message"]
        acme = await lab.tenant()
        too_large = await lab.pod(acme, 8)
        one, other = await a_tenant_comes_and_goes(lab, acme)
        await an_operator_repairs(lab, one, other)

        def serves() -> bool:
            assert lab.controller is not None
            return lab.controller.serves(lab.host)

        # The node controller of a real control plane says that the node is lost.
        assert serves()
        silent.set()
        await comes(lambda: not serves())
        silent.clear()
        await comes(serves)
        await lab.still_waits(too_large)

    async def a_tenant_comes_and_goes(lab: LeaseLab, acme: str) -> list[int]:
        pod = await lab.admitted(await lab.pod(acme, 2))
        leases = await lab.leases()
        mine = sorted(m for m, s in leases.items() if s["phase"] == "Leased")
        holder = leases[mine[0]]["holder"]
        assert sorted(holder["gpus"]) == mine
        assert (len(mine), holder["tenant"], holder["admitted"]) == (2, acme, True)
        lease = pod["metadata"]["annotations"][LEASE_ANNOTATION]
        assert lease == f"{lab.host}/{holder['partition']}"
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": lab.host}
        assert host.active_partitions() == [holder["partition"]]
        assert marks(host) == {pci_of(m) for m in mine}
        await lab.allocate(pod)
        assert tenant.use(host.folder, host.name, mine, acme) == []
        tenant.use(host.folder, host.name, mine[:1], acme, knobs={"ecc": "disabled"})
        tenant.use(host.folder, host.name, mine[1:], acme, firmware="96.00.A5.00.66")
        host.set_partition_in_use(holder["partition"], "vm")
        host.forget()
        await lab.delete(pod)
        await lab.until(phase_is("Releasing", *mine))
        await asyncio.sleep(0.3)
        assert not [c for c in host.commands() if "reset" in c], "reset while it is used"
        host.set_partition_in_use(holder["partition"], None)
        await lab.allocate(pod, allocated=False)
        return mine

    async def an_operator_repairs(lab: LeaseLab, one: int, other: int) -> None:
        # The tenant turned ECC off for good and changed firmware: exactly its GPUs are found out.
        await lab.until(phase_is("Quarantined", one, other))
        leases = await lab.leases()
        assert (leases[one]["reason"], leases[other]["reason"]) == (
            "KnobsChanged",
            "FirmwareChanged",
        )
        assert f"HGX_FW_GPU_SXM_{other} is 96.00.A5.00.66" in leases[other]["message"]
        sound = set(EVERY) - {1, 2, one, other}
        assert {m for m, s in leases.items() if s["phase"] == "Free"} == sound
        assert host.active_partitions() == []
        assert marks(host) == set()
        # A recheck finds it as it is, as often as one asks.
        await lab.recheck(other, "first")
        cycle = leases[other]["cycle"]
        await lab.until(lambda x: x[other]["cycle"] == cycle + 1)
        await lab.until(phase_is("Quarantined", other))
        with gpus.change(HostsFolder(host.folder).host(host.name), other) as gpu:
            gpu.firmware = None
        await lab.recheck(other, "repaired")
        await lab.until(phase_is("Free", other))
        assert tenant.use(host.folder, host.name, [other], "next") == []

    with ready_node(lease_api) as (node, silent):
        asyncio.run(beside_a_controller(node, silent))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    return functools.partial(in_memory, monkeypatch)


def told(**chosen: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """A story in memory, on a machine with these options or with the test's own parameter `options`."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(made: Any, **given: Any) -> None:
            async def story() -> None:
                async with made(**chosen, **given.get("options", {})) as lab_and_memory:
                    await test(lab_and_memory, **given)

            with asyncio.Runner(loop_factory=QuickLoop) as runner:
                runner.run(story())

        return run

    return decorate


Made = tuple[LeaseLab, Memory]


def unless(*modules: int) -> Callable[[Effect], Outcome | None]:
    """The firmware of these GPUs is another."""

    def says(effect: Effect) -> Outcome | None:
        if isinstance(effect, ReadFirmware) and effect.module in modules:
            return Succeeded(effect, {f"FW_GPU_{effect.module}": "2"})
        return None

    return says


@pytest.mark.parametrize(
    ("silent", "options", "reason"),
    [
        (ReadFirmware, {"phases": {"verifying": 3}}, "VerificationTimedOut"),
        (object, {"phases": {"resetting": 3}}, "ResetTimedOut"),
    ],
    ids=["the BMC is silent", "the machine is not reached"],
)
@told()
async def test_what_cannot_be_asked_in_time_is_closed_and_a_recheck_opens_it(
    made: Made, silent: type, options: Any, reason: str
) -> None:
    lab, memory = made
    memory.machine.says = lambda e: Failed(e, "no answer") if isinstance(e, silent) else None
    await lab.until(phase_is("Quarantined", *EVERY))
    assert {s["reason"] for s in (await lab.leases()).values()} == {reason}
    await lab.stop()
    memory.machine.says = unless()
    await lab.start()
    await asyncio.gather(*(lab.recheck(module) for module in EVERY))
    await lab.all_free()


@told()
async def test_a_pod_waits_until_its_tenancy_is_ready(made: Made) -> None:
    lab, _ = made
    await lab.all_free()
    acme = await lab.tenant(ready=False)
    pod = await lab.pod(acme, 1)
    stranger = await lab.pod(await lab.tenant(f"{acme}-other", ready=True), 1)
    await lab.admitted(stranger)
    await lab.still_waits(pod)
    tenancy = await lab.cluster.get(TENANCY, acme)
    assert tenancy is not None
    await lab.allocate(stranger)
    await lab.say_ready(tenancy, ready=True)
    await lab.admitted(pod)


@told()
async def test_one_pod_at_a_time_goes_to_a_host_that_has_not_allocated_yet(made: Made) -> None:
    lab, _ = made
    acme = await lab.tenant()
    pods = [await lab.pod(acme, 1), await lab.pod(acme, 1)]

    def admitted_in(leases: dict[int, Lease]) -> list[Lease]:
        return [s for s in leases.values() if s.get("holder", {}).get("admitted")]

    await lab.until(
        lambda x: sum(s["phase"] == "Leased" for s in x.values()) == 2 and bool(admitted_in(x))
    )
    await asyncio.sleep(10)
    (admitted,) = admitted_in(await lab.leases())
    first, second = sorted(
        pods, key=lambda p: bool(p["metadata"]["uid"] != admitted["holder"]["podUid"])
    )
    await lab.admitted(first)
    await lab.allocate(first)
    await lab.admitted(second)


@told(phases={"releasing": 12})
async def test_a_pod_whose_gpu_the_kubelet_gave_to_another_is_deleted_and_its_gpus_wait_for_the_other(
    made: Made,
) -> None:
    lab, _ = made
    acme = await lab.tenant()
    pod = await lab.admitted(await lab.pod(acme, 2))
    await lab.allocate(pod)
    one, other = sorted(m for m, p in (await lab.phases()).items() if p == "Leased")
    await lab.dispute(one)
    await lab.until(phase_is("Releasing", one, other))
    await lab.pod_when(pod, lambda found: found is None)
    # The other pod keeps what it has: nothing is reset under it.
    cycle = (await lab.leases())[one]["cycle"]
    await lab.until(phase_is("Quarantined", one))
    status = (await lab.leases())[one]
    assert (status["reason"], status["cycle"]) == ("ReleaseTimedOut", cycle)
    assert status["lastTenant"] == acme
    assert status["holder"]["admitted"] is True
    await lab.allocate(pod, allocated=False)
    await lab.dispute(one, disputed=False)
    await lab.until(lambda x: "holder" not in x[one] and "holder" not in x[other])
    await asyncio.gather(lab.recheck(one), lab.recheck(other))
    await lab.all_free()
    assert not any("lastTenant" in s for s in (await lab.leases()).values())


@told(partitions=(1, 5, 6), declared_layout=True)
async def test_a_declared_layout_stays_active_between_tenants_and_its_marks_go(made: Made) -> None:
    lab, memory = made
    machine = memory.machine

    async def at_rest() -> None:
        await lab.all_free()
        await comes(lambda: machine.active == {1, 5, 6} and not machine.withheld)

    await at_rest()
    pod = await lab.admitted(await lab.pod(await lab.tenant(), 2))
    one, other = sorted(m for m, p in (await lab.phases()).items() if p == "Leased")
    assert machine.withheld == set()
    machine.use({one, other})
    machine.says = unless(one)
    await lab.delete(pod)
    await lab.until(phase_is("Quarantined", one))
    await lab.until(phase_is("Free", other))
    # Down with the GPU that is closed, and nobody else may bring it up.
    assert machine.withheld == {one, other}
    assert len(machine.active) == 2
    machine.says = unless()
    await lab.recheck(one)
    await at_rest()
    again = await lab.admitted(await lab.pod(await lab.tenant(), 4))
    assert again["metadata"]["annotations"][LEASE_ANNOTATION] == f"{lab.host}/1"


@told(start_deadline=0.004)
async def test_a_pod_that_has_its_gpus_and_does_not_start_is_ended_and_its_gpus_return(
    made: Made,
) -> None:
    lab, _ = made
    pod = await lab.admitted(await lab.pod(await lab.tenant(), 2))
    await lab.allocate(pod)
    # It gets its place, and then nothing is heard of it.
    placed = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    where = (pod["metadata"]["name"], lab.namespace, {"status": {"conditions": [placed]}})
    await lab.cluster.patch(POD, *where, subresource="status")
    await lab.pod_when(pod, lambda found: found is None)
    await lab.allocate(pod, allocated=False)
    await lab.all_free()


@told()
async def test_a_node_that_is_lost_offers_nothing_until_its_machine_has_answered(
    made: Made,
) -> None:
    lab, memory = made
    await lab.all_free()
    store = Store(lab.settings, lab.cluster)
    memory.machine.says = lambda effect: Failed(effect, "nobody answers here")
    memory.node("Unknown")
    pod = await lab.pod(await lab.tenant(), 2)
    await lab.still_waits(pod)
    async with store.running(), asyncio.timeout(PATIENCE_SECONDS):
        while not (outage := store.outages([lab.host])) or outage[lab.host].why is Why.GONE:
            await asyncio.sleep(0.05)
    assert outage[lab.host].why is Why.NOT_READY
    assert outage[lab.host].message.startswith(f"{lab.host} is NotReady since 2")
    # Nor does another controller give them out, that begins while the node is away.
    await lab.stop()
    await lab.start()
    await lab.still_waits(pod)
    # The node is there again, but its machine does not answer yet.
    memory.node()
    await lab.still_waits(pod)
    assert set((await lab.phases()).values()) == {"Free"}, "no GPU is closed"
    memory.machine.says = unless()
    went = await lab.admitted(pod)
    assert went["spec"]["nodeSelector"] == {"kubernetes.io/hostname": lab.host}
