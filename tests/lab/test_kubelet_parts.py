"""Parts of the stand-in of the kubelets by themselves: no API server, no process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gpuclusters.container_api.container import LEASE_ANNOTATION
from lab.cluster import Event
from lab.hosts.folder import HostsFolder
from lab.hosts.injecting import BusyError
from lab.kubelet import process_container, status, stop
from lab.kubelet.addresses import LoopbackAddresses, PodRange, public, reachable
from lab.kubelet.checkpoint import Allocation, Checkpoint
from lab.kubelet.environment import expanded, located
from lab.kubelet.folder import KubeletFolder
from lab.kubelet.logs import ContainerLog, LogOptions
from lab.kubelet.machine import Machine
from lab.kubelet.model import KubeletError
from lab.kubelet.network_agent import POLICIES, judge
from lab.kubelet.pod_status import Conditions, ContainerState, running
from tests.fixtures.hosts import Hosts

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def allocation(uid: str, *devices: str) -> Allocation:
    return Allocation(uid, "ns", uid, "main", "r.example/gpu", devices, ("r.example/gpu=1",))


def test_what_was_given_away_survives_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    first = Checkpoint(file)
    first.register("r.example/gpu")
    first.add([allocation("a", "1", "2"), allocation("b", "3")])
    again = Checkpoint(file)
    assert again.of_pod("a") == [allocation("a", "1", "2")]
    assert again.in_use("r.example/gpu") == {"1", "2", "3"}
    assert again.resources == {"r.example/gpu"}
    assert again.keep_only({"b"})
    assert not again.free("a")
    assert Checkpoint(file).in_use("r.example/gpu") == {"3"}
    # A damaged one is begun anew.
    file.write_text("{")
    kept = Checkpoint(file)
    assert kept.in_use("r.example/gpu") == set()
    kept.add([allocation("a", "1")])
    assert json.loads(file.read_text())["allocations"][0]["devices"] == ["1"]


def test_paths_of_mounts_become_folders_of_the_lab() -> None:
    mounts = {
        "/etc/config": Path("/lab/pods/u/volumes/config"),
        "/etc": Path("/lab/etc"),
        "/tmp": Path("/lab/pods/u/volumes/scratch"),
    }
    for text, real in (
        ("/etc/config/a.yaml", "/lab/pods/u/volumes/config/a.yaml"),
        ("/etc/configuration", "/lab/etc/configuration"),
        ("/etcetera", "/etcetera"),
        ("--file=/etc/config", "--file=/lab/pods/u/volumes/config"),
        ("/etc/config:/tmp/x", "/lab/pods/u/volumes/config:/lab/pods/u/volumes/scratch/x"),
        ("https://host/tmp/x", "https://host/tmp/x"),
        ("/home/etc/config", "/home/etc/config"),
    ):
        assert located(text, mounts) == real
    # A folder below the place of another mount is not replaced again.
    mounts = {"/data": Path("/tmp/lab/data"), "/tmp": Path("/tmp/lab/scratch")}
    assert located("/data/x", mounts) == "/tmp/lab/data/x"


def test_references_to_variables_are_expanded_as_kubernetes_does() -> None:
    for text, result in (
        ("$(A)-$(B)", "1-$(B)"),
        ("$$(A)", "$(A)"),
        ("$A", "$A"),
        ("cost: 5$", "cost: 5$"),
    ):
        assert expanded(text, {"A": "1"}) == result


def read(log: ContainerLog, *, ended: bool = True, **options: Any) -> list[str]:
    async def act() -> list[str]:
        lines = log.read(LogOptions(**options), lambda: ended)
        return [line.decode() async for line in lines]

    return asyncio.run(act())


def test_a_log_is_read_as_asked(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "log")
    assert read(log) == []
    for number in range(3):
        log.append(0, "stdout", f"line {number}".encode())
    log.append(1, "stderr", b"second run")
    assert read(log) == ["second run\n"]
    assert read(log, previous=True, tail=2) == ["line 1\n", "line 2\n"]
    assert read(log, previous=True, tail=0) == []
    assert read(log, previous=True, limit_bytes=9) == ["line 0\n", "li"]
    (line,) = read(log, timestamps=True)
    when, text = line.split(" ", 1)
    assert text == "second run\n"
    assert abs(datetime.fromisoformat(when) - datetime.now(UTC)) < timedelta(minutes=1)
    assert read(log, since=datetime.now(UTC) + timedelta(minutes=1)) == []


def test_who_follows_a_log_misses_nothing_though_it_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.kubelet.logs.LARGEST_BYTES", 300)
    log = ContainerLog(tmp_path / "log")
    log.append(0, "stdout", b"0")

    async def act() -> list[bytes]:
        ended = False

        async def write() -> None:
            nonlocal ended
            for number in range(1, 30):
                await asyncio.sleep(0.02)
                log.append(0, "stdout", str(number).encode())
            ended = True

        writing = asyncio.create_task(write())
        seen = [line async for line in log.read(LogOptions(follow=True), lambda: ended)]
        await writing
        return seen

    assert asyncio.run(act()) == [f"{number}\n".encode() for number in range(30)]
    assert log.run(0).stat().st_size < 400


def test_addresses_of_processes_are_their_own_and_their_ports_are_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = LoopbackAddresses()
    first = addresses.take([8080])
    assert first.startswith("127.")
    assert not first.startswith("127.0.")
    assert first != addresses.take([8080])
    # Endpoints of Services must not be loopback: the cluster is told another address for it.
    assert public(first).startswith("198.")
    assert reachable(public(first)) == first
    with socket.socket() as taken:
        taken.bind(("127.18.7.7", 0))
        taken.listen()
        numbers = iter([7, 7, 9, 9])
        monkeypatch.setattr(addresses._random, "randint", lambda *_: next(numbers))
        monkeypatch.setattr(addresses._random, "choice", lambda _: 18)
        assert addresses.take([taken.getsockname()[1]]) == "127.18.9.9"


def test_simulated_pods_get_the_lowest_free_address_of_the_nodes_range() -> None:
    addresses = PodRange()
    addresses.use("10.128.4.0/24")
    assert [addresses.take(), addresses.take()] == ["10.128.4.2", "10.128.4.3"]
    addresses.give_back("10.128.4.2")
    assert addresses.take() == "10.128.4.2"
    assert addresses.take("10.128.4.9") == "10.128.4.9"


def test_a_folder_whose_path_is_too_long_for_sockets_gets_a_short_name_that_is_trusted(
    tmp_path: Path,
) -> None:
    deep = KubeletFolder(tmp_path / ("d" * 120))
    theirs = tmp_path / "theirs"
    for folder in (deep.path, theirs):
        folder.mkdir()
    try:
        # It leads elsewhere, or is another user's, who can turn it at any time.
        deep.link.symlink_to(theirs)
        assert deep.reachable is deep
        with pytest.raises(KubeletError, match="cannot be made a short name"):
            deep.within_reach(["node"])
        deep.link.unlink()
        if os.getuid() == 0:
            deep.link.symlink_to(deep.path)
            os.lchown(deep.link, 65534, 65534)
            assert deep.reachable is deep
            with pytest.raises(KubeletError, match="cannot be made a short name"):
                deep.within_reach(["node"])
            deep.link.unlink()
        reachable = deep.within_reach(["node"])
        assert reachable.path != deep.path
        assert reachable.path.resolve() == deep.path
        assert len(str(reachable.node("node").registration)) < 108
        # Doing it again finds it done.
        assert deep.within_reach(["node"]).path == reachable.path
        stop(deep.path)
        assert not reachable.path.is_symlink()
    finally:
        deep.link.unlink(missing_ok=True)
    short = KubeletFolder(Path("/tmp/x"))
    assert short.within_reach(["node"]) is short


def test_what_does_not_run_says_so_and_can_be_stopped(tmp_path: Path) -> None:
    found = status(tmp_path)
    assert (found.running, found.detail, found.nodes) == (False, "not started", {})
    stop(tmp_path)
    stop(tmp_path / "absent")


def pod(**status: Any) -> dict[str, Any]:
    metadata = {"name": "p", "namespace": "n", "uid": "u"}
    return {"metadata": metadata, "spec": {"containers": [{}]}, "status": status}


@pytest.mark.parametrize("verdict", ["True", "False"])
def test_a_policy_that_somebody_has_judged_keeps_its_verdict(verdict: str) -> None:
    def policy(name: str, *conditions: dict[str, str]) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "n"}
        return {"metadata": metadata, "status": {"conditions": [*conditions]}}

    async def watch(_kind: object) -> AsyncIterator[Event]:
        yield Event("ADDED", policy("judged", {"type": "Valid", "status": verdict}))
        yield Event("ADDED", policy("new"))
        yield Event("MODIFIED", policy("other", {"type": "Other", "status": "True"}))
        yield Event("DELETED", policy("gone"))
        await asyncio.Event().wait()

    cluster = AsyncMock(watch=watch)

    async def act() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await judge(cluster, POLICIES[0])

    asyncio.run(act())
    patched = [call.args for call in cluster.patch.await_args_list]
    told = [(name, part, body["status"]["conditions"]) for _, name, _, body, part in patched]
    assert [(name, part, len(found)) for name, part, found in told] == [
        ("new", "status", 1),
        ("other", "status", 2),
    ]
    assert all(found[-1]["type"] == "Valid" for _, _, found in told)


def test_a_container_that_crashes_is_no_reason_to_be_pending_again() -> None:
    crashed = ContainerState("a", "i", waiting="CrashLoopBackOff", last_exit=(3, NOW, NOW))
    status = running(pod(phase="Running"), Conditions(pod()), [crashed])["status"]
    assert status["phase"] == "Running"
    (container,) = status["containerStatuses"]
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container["lastState"]["terminated"]["exitCode"] == 3


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    before = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    conditions = Conditions(pod(conditions=[before]))
    assert conditions.documents({"Ready": True})[0]["lastTransitionTime"] == "2020-01-01T00:00:00Z"
    changed = conditions.documents({"Ready": False}, "ContainersNotReady")[0]
    assert changed["lastTransitionTime"] > "2020-01-01T00:00:00Z"
    assert changed["reason"] == "ContainersNotReady"


def test_virtual_machines_of_pods_that_are_gone_are_gone_after_a_restart(hosts: Hosts) -> None:
    (host,) = hosts()
    machine = Machine(host.folder, host.name)

    def leased(name: str, partition: int) -> dict[str, Any]:
        annotations = {LEASE_ANNOTATION: f"{host.name}/{partition}"}
        return {"metadata": {"name": name, "namespace": "n", "annotations": annotations}}

    def holders() -> dict[str, str]:
        users = json.loads(HostsFolder(host.folder).host(host.name).virtual_machines.read_text())
        return {number: user["holder"] for number, user in users.items()}

    second = leased("b", 4)
    asyncio.run(machine.begin(leased("a", 3), ["1", "3"]))
    asyncio.run(machine.begin(second, ["2", "4"]))
    host.set_partition_in_use(6, "by-hand")
    asyncio.run(machine.keep_only([second]))
    assert holders() == {"4": "n/b", "6": "by-hand"}
    # Another pod finds GPUs taken: it gets none, and its end takes none away.
    third = leased("c", 1)
    with pytest.raises(BusyError, match=r"held open by n/b: Device or resource busy"):
        asyncio.run(machine.begin(third, ["1", "2", "3", "4"]))
    asyncio.run(machine.end(third))
    assert set(holders()) == {"4", "6"}
    asyncio.run(machine.end(second))
    assert set(holders()) == {"6"}


@pytest.mark.parametrize(
    ("probe", "seconds"), [({}, 40.0), ({"terminationGracePeriodSeconds": 7}, 7.0)]
)
def test_a_container_whose_probe_fails_is_given_the_grace_of_its_pod_or_its_probe(
    probe: dict[str, Any], seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()
    program = AsyncMock()
    program.wait.side_effect = ended.wait
    program.stop.side_effect = lambda _grace: ended.set()
    monkeypatch.setattr(process_container.Process, "start", AsyncMock(return_value=program))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        check = {"tcpSocket": {"port": closed.getsockname()[1]}, "failureThreshold": 1}
        container = process_container.ProcessContainer(
            {"name": "main", "image": "i", "livenessProbe": check | probe},
            restart_policy="Never",
            environment=AsyncMock(),
            volumes=AsyncMock(folder=tmp_path),
            log=ContainerLog(tmp_path / "log"),
            address="127.0.0.1",
            grace_seconds=40.0,
            restarts=0,
            changed=lambda: None,
            tell=AsyncMock(),
        )
        asyncio.run(container.run())
    program.stop.assert_awaited_once_with(seconds)
