"""Parts of the stand-in of the kubelets by themselves: no API server, no process."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.container_api.container import LEASE_ANNOTATION
from lab.hosts.folder import HostsFolder
from lab.hosts.injecting import BusyError
from lab.kubelet import stop
from lab.kubelet.checkpoint import Allocation, Checkpoint
from lab.kubelet.environment import located
from lab.kubelet.folder import KubeletFolder
from lab.kubelet.machine import Machine
from lab.kubelet.model import KubeletError
from tests.fixtures.hosts import Hosts


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
