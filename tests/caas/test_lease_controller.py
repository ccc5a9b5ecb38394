"""Leases on a real API server, with machines that answer over SSH and Redfish."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from caas.controllers.host_effects import MARKS, WITHHELD, quarantined
from gpuclusters.container_api.container import LEASE_ANNOTATION
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import POD
from lab.hosts import faults
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware import gpus, tenant
from lab.hosts.hardware.board import board
from tests.caas.hostile_bmc import INVENTORY, broken_off, hostile_bmc, page
from tests.caas.leasekit import PATIENCE_SECONDS, Lease, LeaseLab, lease_lab
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.waiting import comes

pytestmark = pytest.mark.lab

FOREIGN = page([], count=1, next="https://attacker.example/")


@pytest.fixture
def host(hosts: Hosts) -> SimulatedHost:
    """The machine of a test."""
    (made,) = hosts()
    return made


@pytest.fixture
def lab(kube_api: KubeCluster, namespace: str, host: SimulatedHost) -> Any:
    """Makes a controller of the machine, whose GPUs are free when a test begins, unless they are new."""

    def make(*, faults: Sequence[Any] = (), free: bool = True, **options: Any) -> Any:
        host.inject(*faults)
        return lease_lab(kube_api, namespace, [host], free=free, **options)

    return make


def told(**chosen: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """A test beside a controller that these options make, and the test's own parameter `options`."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(lab: Any, **given: Any) -> None:
            async def story() -> None:
                async with lab(**chosen, **given.get("options", {})) as made:
                    await test(made, **given)

            asyncio.run(story())

        return run

    return decorate


def phase_is(phase: str, *modules: int) -> Any:
    return lambda leases: all(leases.get(m, {}).get("phase") == phase for m in modules)


def marks(host: SimulatedHost, sort: str) -> set[str]:
    """Addresses of the GPUs that leases have, or whose partitions they keep down, as the machine says."""
    folder = host.path(sort)
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def pci_of(module: int) -> str:
    return board("supermicro-hgx-h100").gpus[module].address


@told()
async def test_a_pod_gets_a_whole_partition_and_gives_it_back_verified(
    lab: LeaseLab, host: SimulatedHost
) -> None:
    acme = await lab.tenant()
    pod = await lab.admitted(await lab.pod(acme, 2))
    leases = await lab.leases()
    mine = {m for m, s in leases.items() if s["phase"] == "Leased"}
    assert len(mine) == 2
    holder = leases[min(mine)]["holder"]
    assert set(holder["gpus"]) == mine
    assert holder["tenant"] == acme
    assert holder["admitted"] is True
    lease = pod["metadata"]["annotations"][LEASE_ANNOTATION]
    assert lease == f"{lab.host}/{holder['partition']}"
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": lab.host}
    assert host.active_partitions() == [holder["partition"]]
    assert marks(host, MARKS) == {pci_of(m) for m in mine}
    await lab.allocate(pod)
    harm = tenant.use(host.folder, host.name, sorted(mine), acme, knobs={"ecc": "disabled"})
    assert harm == []
    host.set_partition_in_use(holder["partition"], "vm")
    host.forget()
    await lab.delete(pod)
    await lab.until(phase_is("Releasing", *mine))
    await asyncio.sleep(0.3)
    assert not [c for c in host.commands() if "reset" in c], "reset while it is used"
    host.set_partition_in_use(holder["partition"], None)
    await lab.allocate(pod, allocated=False)
    await lab.until(lambda x: not phase_is("Releasing", *mine)(x))
    # The tenant turned ECC off for good: exactly its GPUs are found out.
    await lab.until(phase_is("Quarantined", *mine))
    leases = await lab.leases()
    assert {leases[m]["reason"] for m in mine} == {"KnobsChanged"}
    assert {m for m, s in leases.items() if s["phase"] == "Free"} == set(leases) - mine
    assert host.active_partitions() == []
    assert marks(host, MARKS) == set()


@told()
async def test_changed_firmware_quarantines_exactly_that_gpu_until_it_is_right_again(
    lab: LeaseLab, host: SimulatedHost
) -> None:
    acme = await lab.tenant()
    pod = await lab.admitted(await lab.pod(acme, 2))
    one, other = sorted(m for m, p in (await lab.phases()).items() if p == "Leased")
    await lab.allocate(pod)
    tenant.use(host.folder, host.name, [one, other], acme)
    tenant.use(host.folder, host.name, [one], acme, firmware="96.00.A5.00.66")
    await lab.delete(pod)
    await lab.allocate(pod, allocated=False)
    await lab.until(phase_is("Quarantined", one))
    await lab.until(phase_is("Free", other))
    status = (await lab.leases())[one]
    assert status["reason"] == "FirmwareChanged"
    assert f"HGX_FW_GPU_SXM_{one} is 96.00.A5.00.66" in status["message"]
    phases = await lab.phases()
    assert {m for m, phase in phases.items() if phase != "Free"} == {one}
    # A recheck finds it as it is, as often as one asks.
    await lab.recheck(one, "first")
    await lab.until(lambda x: x[one]["cycle"] == status["cycle"] + 1)
    await lab.until(phase_is("Quarantined", one))
    with gpus.change(HostsFolder(host.folder).host(host.name), one) as gpu:
        gpu.firmware = None
    await lab.recheck(one, "repaired")
    await lab.until(phase_is("Free", one))
    harm = tenant.use(host.folder, host.name, [one], "next")
    assert harm == []


@told(free=False, faults=[faults.ResetNotSupported(module=1), faults.MemoryNotCleared(module=2)])
async def test_gpus_that_cannot_be_reset_or_cleared_are_closed_and_the_others_serve(
    lab: LeaseLab,
) -> None:
    await lab.until(phase_is("Quarantined", 1, 2))
    await lab.until(phase_is("Free", 3, 4, 5, 6, 7, 8))
    leases = await lab.leases()
    assert leases[1]["reason"] == "ResetFailed"
    assert leases[2]["reason"] == "MemoryNotCleared"
    assert "memory_clear_finished" in leases[2]["message"]
    pod = await lab.pod(await lab.tenant(), 8)
    await asyncio.sleep(1)
    body = await lab.cluster.get(POD, pod["metadata"]["name"], lab.namespace)
    assert body is not None
    assert body["spec"]["schedulingGates"], "a board with closed GPUs gave all of them"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"faults": [faults.BmcSilent()], "phases": {"verifying": 3}}, "VerificationTimedOut"),
        ({"faults": [faults.RefuseConnections()], "phases": {"resetting": 3}}, "ResetTimedOut"),
    ],
    ids=["the BMC is silent", "the machine is not reached"],
)
@told(free=False)
async def test_what_cannot_be_asked_in_time_is_closed_and_a_recheck_opens_it(
    lab: LeaseLab, host: SimulatedHost, options: Any, reason: str
) -> None:
    await lab.until(phase_is("Quarantined", *range(1, 9)))
    assert {s["reason"] for s in (await lab.leases()).values()} == {reason}
    await lab.stop()
    host.clear_faults()
    lab.settings = lab.settings.model_copy(
        update={
            "phases": lab.settings.phases.model_copy(update={"verifying": 200, "resetting": 200})
        }
    )
    await lab.start()
    await asyncio.gather(*(lab.recheck(module) for module in range(1, 9)))
    await lab.all_free()


@pytest.mark.attack(
    by="a BMC",
    tries="has its inventory taken for a good one by a foreign link or an answer broken off",
    stopped_by="every GPU of the machine is quarantined, with the reason and what to do",
)
@pytest.mark.parametrize(
    ("answer", "options", "reason", "said"),
    [
        (FOREIGN, {}, "InventoryLinkRefused", "read the"),
        (broken_off, {"phases": {"verifying": 3}}, "InventoryTruncated", "check the network"),
    ],
    ids=["at once", "when time is up"],
)
@told(free=False)
async def test_a_bmc_that_is_not_believed_closes_its_gpus_and_says_why(
    lab: LeaseLab, tmp_path: Path, answer: Any, options: Any, reason: str, said: str
) -> None:
    await lab.stop()
    async with hostile_bmc(tmp_path) as bmc:
        bmc.answers[INVENTORY] = answer
        (machine,) = lab.settings.hosts
        assert machine.bmc is not None
        place = {"url": bmc.url, "certificate": bmc.certificate}
        machine = machine.model_copy(update={"bmc": machine.bmc.model_copy(update=place)})
        lab.settings = lab.settings.model_copy(update={"hosts": (machine,)})
        await lab.start()
        await lab.until(phase_is("Quarantined", *range(1, 9)))
        leases = await lab.leases()
        await lab.stop()
    assert {lease["reason"] for lease in leases.values()} == {reason}
    for lease in leases.values():
        assert f"{lab.host}: the BMC 127.0.0.1:" in lease["message"]
        assert said in lease["message"]


@told()
async def test_a_pod_waits_until_its_tenancy_is_ready(lab: LeaseLab) -> None:
    acme = await lab.tenant(ready=False)
    pod = await lab.pod(acme, 1)
    stranger = await lab.pod(await lab.tenant(f"{acme}-other", ready=True), 1)
    await lab.admitted(stranger)
    assert set((await lab.phases()).values()) == {"Free", "Leased"}
    body = await lab.cluster.get(POD, pod["metadata"]["name"], lab.namespace)
    assert body is not None
    assert body["spec"]["schedulingGates"]
    tenancy = await lab.cluster.get(TENANCY, acme)
    assert tenancy is not None
    await lab.allocate(stranger)
    await lab.say_ready(tenancy, ready=True)
    await lab.admitted(pod)


@told()
async def test_one_pod_at_a_time_goes_to_a_host_that_has_not_allocated_yet(lab: LeaseLab) -> None:
    acme = await lab.tenant()
    pods = [await lab.pod(acme, 1), await lab.pod(acme, 1)]

    def admitted_in(leases: dict[int, Lease]) -> list[Lease]:
        return [s for s in leases.values() if s.get("holder", {}).get("admitted")]

    await lab.until(
        lambda x: sum(s["phase"] == "Leased" for s in x.values()) == 2 and bool(admitted_in(x))
    )
    await asyncio.sleep(0.5)
    admitted = admitted_in(await lab.leases())
    assert len(admitted) == 1
    (first,) = [p for p in pods if p["metadata"]["uid"] == admitted[0]["holder"]["podUid"]]
    (second,) = [p for p in pods if p is not first]
    await lab.admitted(first)
    await lab.allocate(first)
    await lab.admitted(second)


@told(phases={"releasing": 12})
async def test_a_pod_whose_gpu_the_kubelet_gave_to_another_is_deleted_and_its_gpus_wait_for_the_other(
    lab: LeaseLab,
) -> None:
    acme = await lab.tenant()
    pod = await lab.admitted(await lab.pod(acme, 2))
    await lab.allocate(pod)
    one, other = sorted(m for m, p in (await lab.phases()).items() if p == "Leased")
    await lab.dispute(one)
    await lab.until(phase_is("Releasing", one, other))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while body := await lab.cluster.get(POD, pod["metadata"]["name"], lab.namespace):
            if body["metadata"].get("deletionTimestamp"):
                # It has a node, so that a kubelet would end it.
                await lab.delete(pod)
            else:
                await asyncio.sleep(0.05)
    # The other pod keeps what it has: nothing is reset under it.
    cycle = (await lab.leases())[one]["cycle"]
    await lab.until(phase_is("Quarantined", one))
    status = (await lab.leases())[one]
    assert status["reason"] == "ReleaseTimedOut"
    assert status["cycle"] == cycle
    assert status["lastTenant"] == acme
    assert status["holder"]["admitted"] is True
    await lab.allocate(pod, allocated=False)
    await lab.dispute(one, disputed=False)
    await lab.until(lambda x: "holder" not in x[one] and "holder" not in x[other])
    await asyncio.gather(lab.recheck(one), lab.recheck(other))
    await lab.all_free()
    assert not any("lastTenant" in s for s in (await lab.leases()).values())


@told(free=False, partitions=(1, 5, 6), declared_layout=True)
async def test_a_declared_layout_stays_active_between_tenants_and_its_marks_go(
    lab: LeaseLab, host: SimulatedHost
) -> None:
    async def at_rest() -> None:
        await comes(
            lambda: sorted(host.active_partitions()) == [1, 5, 6] and not marks(host, WITHHELD)
        )

    await lab.all_free()
    await at_rest()
    pod = await lab.admitted(await lab.pod(await lab.tenant(), 2))
    one, other = sorted(m for m, p in (await lab.phases()).items() if p == "Leased")
    assert marks(host, WITHHELD) == set()
    tenant.use(host.folder, host.name, [one], "acme", firmware="96.00.A5.00.66")
    await lab.delete(pod)
    await lab.until(phase_is("Quarantined", one))
    await lab.until(phase_is("Free", other))
    # Down with the GPU that is closed, and nobody else may bring it up.
    await comes(host.path(quarantined(pci_of(one))).exists)
    assert marks(host, WITHHELD) == {pci_of(one), pci_of(other)}
    assert len(host.active_partitions()) == 2
    with gpus.change(HostsFolder(host.folder).host(host.name), one) as gpu:
        gpu.firmware = None
    await lab.recheck(one)
    await lab.all_free()
    await at_rest()
    again = await lab.admitted(await lab.pod(await lab.tenant(), 4))
    assert again["metadata"]["annotations"][LEASE_ANNOTATION] == f"{lab.host}/1"


@told(start_deadline=1.0)
async def test_a_pod_that_has_its_gpus_and_does_not_start_is_ended_and_its_gpus_return(
    lab: LeaseLab,
) -> None:
    pod = await lab.admitted(await lab.pod(await lab.tenant(), 2))
    await lab.allocate(pod)
    # It gets its place, and then nothing is heard of it.
    await lab.place(pod)
    await lab.pod_when(pod, lambda body: "deletionTimestamp" in body["metadata"])
    await lab.delete(pod)
    await lab.allocate(pod, allocated=False)
    await lab.all_free()
