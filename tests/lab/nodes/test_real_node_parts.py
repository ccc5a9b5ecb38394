"""What real nodes are made of, without any: the choice, the network, cgroups, what programs are told."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.control_plane import NodeSpec, Taint
from lab.nodes import (
    Kind,
    MachineFacts,
    NodesError,
    NodesSpec,
    Wanted,
    cgroups,
    choose,
    links,
)
from lab.nodes.choice import obstacles
from lab.nodes.network import networks, plan
from lab.written import document, read

GOOD = MachineFacts("linux", root=True)
FOLDER = Path("/lab/nodes")


def test_a_machine_with_root_gets_real_nodes() -> None:
    choice = choose(Wanted.AUTO, GOOD)
    assert (choice.kind, choice.why) == (Kind.REAL, "this machine is Linux with root")


def test_simulated_nodes_are_had_everywhere() -> None:
    for facts in (GOOD, MachineFacts("darwin", root=False)):
        assert choose(Wanted.SIMULATED, facts).kind is Kind.SIMULATED


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (MachineFacts("darwin", root=False), "real nodes need Linux and this machine runs darwin"),
        (MachineFacts("linux", root=False), "need root and this user is not"),
        (MachineFacts("linux", root=True, commands_missing=("ip",)), "ip is not on PATH; install"),
        (
            MachineFacts("linux", root=True, controllers_missing=("cpuset", "pids")),
            "no cgroup controller cpuset, pids; enable",
        ),
        (
            MachineFacts("linux", root=True, cgroups_writable=False),
            "/sys/fs/cgroup cannot be written",
        ),
        (MachineFacts("linux", root=True, namespaces=False), "refuses new namespaces"),
        (MachineFacts("linux", root=True, overlay=False), "modprobe overlay"),
        (MachineFacts("linux", root=True, inotify=3), "gives this user 3 more inotify instances"),
    ],
)
def test_what_a_machine_lacks_is_the_reason(facts: MachineFacts, reason: str) -> None:
    automatic, asked = choose(Wanted.AUTO, facts), choose(Wanted.REAL, facts)
    assert automatic.kind is Kind.SIMULATED
    assert reason in automatic.why
    assert not automatic.refused
    assert asked.refused
    assert reason in asked.why


def test_all_obstacles_are_told_at_once() -> None:
    facts = MachineFacts("linux", root=True, commands_missing=("ip",), overlay=False)
    assert len(obstacles(facts)) == 2


def test_kubelets_that_run_already_are_named_and_left_alone() -> None:
    facts = MachineFacts("linux", root=True, others=("kubelet (pid 12)", "dockerd (pid 40)"))
    choice = choose(Wanted.AUTO, facts)
    assert choice.kind is Kind.REAL
    assert "kubelet (pid 12), dockerd (pid 40) are already there, left alone" in choice.why


def test_a_lab_keeps_its_network() -> None:
    assert plan(FOLDER, []) == plan(FOLDER, [])
    assert plan(FOLDER, []) != plan(Path("/other/nodes"), [])


@given(st.lists(st.integers(0, (1 << 14) - 1), max_size=60), st.integers(20, 30))
def test_a_network_meets_none_of_the_machine(chosen: list[int], prefix: int) -> None:
    first = plan(FOLDER, []).subnet
    taken = [first] + [
        ipaddress.IPv4Network((0x64400000 + (number << 8), prefix), strict=False)
        for number in chosen
    ]
    subnet = plan(FOLDER, taken).subnet
    assert not any(subnet.overlaps(other) for other in taken)
    assert subnet.prefixlen == 24
    assert subnet.subnet_of(ipaddress.IPv4Network("100.64.0.0/10"))


def test_a_machine_whose_every_network_is_taken_is_told() -> None:
    with pytest.raises(LookupError, match=r"100\.64\.0\.0/10 is taken"):
        plan(FOLDER, [ipaddress.IPv4Network("100.64.0.0/10")])


def test_networks_are_read_from_what_ip_says() -> None:
    routes = [
        {"dst": "default", "gateway": "192.0.2.1"},
        {"dst": "10.8.0.0/16", "dev": "wg0"},
        {"dst": "100.64.7.9", "table": "52"},
        {"type": "broadcast", "dst": "192.0.2.255"},
    ]
    addresses = [
        {"ifname": "eth0", "addr_info": [{"local": "192.0.2.2", "prefixlen": 24}]},
        {"ifname": "dummy", "addr_info": [{}]},
    ]
    found = {str(network) for network in networks(routes, addresses)}
    assert found == {"10.8.0.0/16", "100.64.7.9/32", "192.0.2.255/32", "192.0.2.0/24"}


def version_1(folder: Path, *controllers: str) -> Path:
    for name in controllers:
        group = folder / name
        group.mkdir()
        for file in ("tasks", "cgroup.procs"):
            (group / file).write_text("")
    return folder


def version_2(folder: Path, controllers: str) -> Path:
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text("")
    (folder / "cgroup.procs").write_text("")
    return folder


def test_version_1_has_a_group_in_every_hierarchy(tmp_path: Path) -> None:
    mount = version_1(tmp_path, *cgroups.NEEDED, "blkio", "unified")
    (mount / "cpuacct").symlink_to("cpu")
    cgroups.make("lab", mount)
    made = {group.parent.name for group in mount.glob("*/lab") if not group.parent.is_symlink()}
    assert made == {*cgroups.NEEDED, "blkio", "unified"}
    assert cgroups.missing(mount) == ()
    assert cgroups.remove("lab", mount) == []
    assert not list(mount.glob("*/lab"))


def test_a_group_of_version_1_gets_the_processors_of_its_parent(tmp_path: Path) -> None:
    mount = version_1(tmp_path, *cgroups.NEEDED)
    (mount / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    (mount / "cpuset" / "lab").mkdir()
    (mount / "cpuset" / "lab" / "cpuset.cpus").write_text("\n")
    cgroups.make("lab", mount)
    assert (mount / "cpuset" / "lab" / "cpuset.cpus").read_text() == "0-1\n"


def test_version_2_is_recognised_and_controllers_are_handed_down(tmp_path: Path) -> None:
    mount = version_2(tmp_path, "cpuset cpu io memory pids")
    assert cgroups.is_unified(mount)
    assert cgroups.missing(mount) == ()
    (mount / "lab").mkdir()
    version_2(mount / "lab", "cpu memory")
    cgroups.make("lab", mount)
    assert (mount / "cgroup.subtree_control").read_text().startswith("+")
    assert (mount / "lab" / "cgroup.subtree_control").read_text().startswith("+")


def test_a_missing_controller_is_named(tmp_path: Path) -> None:
    assert cgroups.missing(version_2(tmp_path, "cpu memory")) == ("cpuset", "pids")


def test_groups_below_a_group_go_with_it(tmp_path: Path) -> None:
    mount = version_1(tmp_path, *cgroups.NEEDED)
    cgroups.make("lab", mount)
    (mount / "memory" / "lab" / "kubepods" / "pod1").mkdir(parents=True)
    assert cgroups.remove("lab", mount) == []
    assert not (mount / "memory" / "lab").exists()


def test_what_is_asked_for_survives_its_file() -> None:
    spec = NodesSpec(
        Path("/lab"),
        (NodeSpec("a", {"zone": "1"}, taints=(Taint("only", "NoSchedule"),)),),
        (Path("/images/1.tar"),),
        {"a": {"/dev/vfio/10": (240, 10)}},
        (2201,),
        Path("/hosts"),
        ("a",),
        {"x@sha256:1": "lab.local/busybox:1"},
    )
    assert read(NodesSpec, json.loads(json.dumps(document(spec)))) == spec


def test_an_interface_that_the_kernel_removed_first_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = [True, False]

    def refused(command: list[str]) -> str:
        raise NodesError("Cannot find device")

    monkeypatch.setattr(links, "interface_exists", lambda _: there.pop(0))
    monkeypatch.setattr(links, "_run", refused)
    links.remove_interface("gcl0")
    assert there == []
    there += [True, True]
    with pytest.raises(NodesError):
        links.remove_interface("gcl0")
