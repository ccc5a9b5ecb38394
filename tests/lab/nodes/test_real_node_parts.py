"""What is decided about real nodes without one: the choice, network, cgroups, capacity, programs."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lab.control_plane import NodeSpec
from lab.nodes import (
    OWN_CAPACITY,
    Kind,
    MachineFacts,
    NodesError,
    NodesSpec,
    Wanted,
    capacity,
    cgroups,
    choose,
    cri,
    links,
    machine_facts,
    server,
    start,
)
from lab.nodes.choice import obstacles
from lab.nodes.network import MOST_NODES, networks, plan
from tests.cilium import network as cilium

FOLDER = Path("/lab/nodes")
NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True)
WHOLE = ipaddress.IPv4Network("100.64.0.0/10")
"""Of which each lab has a part."""


def facts(system: str = "linux", *, root: bool = True, **others: object) -> MachineFacts:
    return MachineFacts(system, root=root, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (facts("darwin", root=False), "real nodes need Linux and this machine runs darwin"),
        (facts(root=False), "need root and this user is not"),
        (facts(commands_missing=("ip",)), "ip is not on PATH; install"),
        (facts(controllers_missing=("cpuset", "pids")), "no cgroup controller cpuset, pids; enable"),
        (facts(cgroups_writable=False), "/sys/fs/cgroup cannot be written"),
        (facts(namespaces=False), "refuses new namespaces"),
        (facts(overlay=False), "modprobe overlay"),
        (facts(inotify=3), "gives this user 3 more inotify instances"),
    ],
)  # fmt: skip
def test_what_a_machine_lacks_is_the_reason(machine: MachineFacts, reason: str) -> None:
    automatic, asked = choose(Wanted.AUTO, machine), choose(Wanted.REAL, machine)
    assert (automatic.kind, automatic.refused) == (Kind.SIMULATED, False)
    assert asked.refused
    assert reason in automatic.why
    assert reason in asked.why
    assert choose(Wanted.SIMULATED, machine).kind is Kind.SIMULATED


def test_a_machine_with_root_gets_real_nodes_and_kubelets_that_run_there_are_left_alone() -> None:
    choice = choose(Wanted.AUTO, facts())
    assert (choice.kind, choice.why) == (Kind.REAL, "this machine is Linux with root")
    choice = choose(Wanted.AUTO, facts(others=("kubelet (pid 12)", "dockerd (pid 40)")))
    assert choice.kind is Kind.REAL
    assert "kubelet (pid 12), dockerd (pid 40) are already there, left alone" in choice.why
    assert len(obstacles(facts(commands_missing=("ip",), overlay=False))) == 2


def test_a_machine_that_can_have_no_iptables_can_have_no_real_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("platform.system", lambda: "Linux")
    assert "iptables" in machine_facts().commands_missing
    for name in ("apt-get", "dpkg-deb"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert "iptables" not in machine_facts().commands_missing


@given(st.lists(st.integers(0, (1 << 14) - 1), max_size=60), st.integers(20, 30))
def test_a_lab_keeps_its_network_which_meets_none_of_the_machine(
    chosen: list[int], prefix: int
) -> None:
    first = plan(FOLDER, []).subnet
    assert first == plan(FOLDER, []).subnet != plan(Path("/other/nodes"), []).subnet
    taken = [first] + [
        ipaddress.IPv4Network((0x64400000 + (number << 8), prefix), strict=False)
        for number in chosen
    ]
    subnet = plan(FOLDER, taken).subnet
    assert not any(subnet.overlaps(other) for other in taken)
    assert subnet.prefixlen == 24
    assert subnet.subnet_of(WHOLE)


def test_all_in_a_network_have_addresses_of_their_own_and_one_that_is_full_is_told() -> None:
    network = plan(FOLDER, [])
    every = [address(n) for n in range(MOST_NODES) for address in (network.node, network.bmc)]
    assert len({*every, network.machine, network.api}) == 2 * MOST_NODES + 2
    assert str(network.subnet.broadcast_address) not in every
    with pytest.raises(LookupError, match=r"100\.64\.0\.0/10 is taken"):
        plan(FOLDER, [WHOLE])


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


def test_an_interface_that_the_kernel_removed_first_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = [True, False, True, True]

    def refused(command: list[str]) -> str:
        raise NodesError("Cannot find device")

    monkeypatch.setattr(links, "interface_exists", lambda _: there.pop(0))
    monkeypatch.setattr(links, "_run", refused)
    links.remove_interface("gcl0")
    with pytest.raises(NodesError):
        links.remove_interface("gcl0")


def version_1(folder: Path, *others: str) -> Path:
    for name in (*cgroups.NEEDED, *others):
        (folder / name).mkdir()
        for file in ("tasks", "cgroup.procs"):
            (folder / name / file).write_text("")
    return folder


def version_2(folder: Path, controllers: str) -> Path:
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text("")
    (folder / "cgroup.procs").write_text("")
    return folder


def test_version_1_has_a_group_in_every_hierarchy_that_goes_with_all_below(tmp_path: Path) -> None:
    mount = version_1(tmp_path, "blkio", "unified")
    (mount / "cpuacct").symlink_to("cpu")
    cpus = mount / "cpuset" / "lab" / "cpuset.cpus"
    cpus.parent.mkdir()
    cpus.write_text("\n")
    (mount / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    cgroups.make("lab", mount)
    made = {group.parent.name for group in mount.glob("*/lab") if not group.parent.is_symlink()}
    assert made == {*cgroups.NEEDED, "blkio", "unified"}
    assert cgroups.missing(mount) == ()
    # Its processors are those of its parent.
    assert cpus.read_text() == "0-1\n"
    cpus.unlink()
    (mount / "memory" / "lab" / "kubepods" / "pod1").mkdir(parents=True)
    assert cgroups.remove("lab", mount) == []
    assert not list(mount.glob("*/lab"))


def test_version_2_is_recognised_and_controllers_are_handed_down(tmp_path: Path) -> None:
    mount = version_2(tmp_path, "cpu memory")
    assert cgroups.missing(mount) == ("cpuset", "pids")
    version_2(tmp_path, "cpuset cpu io memory pids")
    assert cgroups.is_unified(mount)
    assert cgroups.missing(mount) == ()
    (mount / "lab").mkdir()
    version_2(mount / "lab", "cpu memory")
    cgroups.make("lab", mount)
    for group in (mount, mount / "lab"):
        assert (group / "cgroup.subtree_control").read_text().startswith("+")


def node(name: str, **labels: str) -> NodeSpec:
    return NodeSpec(name, labels, OWN_CAPACITY, OWN_CAPACITY)


def lab(*nodes: NodeSpec, plane: str = "/lab", **others: object) -> NodesSpec:
    return NodesSpec(Path(plane), nodes, (), **others)  # type: ignore[arg-type]


@given(NAMES, NAMES)
def test_a_node_keeps_its_number_while_others_come_and_go(
    first: list[str], then: list[str]
) -> None:
    before = server.numbers(first, {})
    after = server.numbers(then, before)
    assert set(after) == set(then)
    assert len(set(after.values())) == len(then)
    assert all(after[name] == before[name] for name in set(first) & set(then))
    assert all(number < len(first) + len(then) for number in after.values())


def test_only_what_is_different_changes_and_what_cannot_is_said(tmp_path: Path) -> None:
    before = lab(node("a"), node("b"), node("c"), node("e"))
    found = server.changes(before, lab(node("a", zone="1"), node("b"), node("d"), NodeSpec("e")))
    # A node with another capacity is made anew.
    assert (found.removed, found.added, found.relabelled) == ({"c", "e"}, {"d", "e"}, {"a"})
    assert server.must_restart(lab(), lab(node("a"))) == ""
    for another, why in (
        (lab(plane="/other"), "control plane"),
        (lab(hosts=Path("/hosts")), "hosts"),
        (lab(network=cilium.__name__), "their network is to be tests.cilium.network"),
    ):
        assert why in server.must_restart(lab(), another)
    joined = lab(node("a"), plane=str(tmp_path), joins=("a",), network=cilium.__name__)
    with pytest.raises(NodesError, match="leave `joins` or `network` out"):
        start(tmp_path, joined)


@given(st.integers(1, 512), st.integers(1, 300))
@example(224, 2)
def test_every_number_of_processors_is_counted_on_every_machine(wanted: int, there: int) -> None:
    machine = capacity.Hardware(wanted, 1 << 40, {1 << 20: 1024})
    files = capacity.files(machine, range(there))
    # What cadvisor counts, and the processors that a kubelet then puts pods on.
    counted = [path.split("/cpu")[1].split("/")[0] for path in files if path.endswith("/core_id")]
    assert len(counted) == files["/proc/cpuinfo"].count("processor\t") == wanted
    assert {*map(int, counted)} <= {*range(there)}
    assert files["/proc/meminfo"].split()[:2] == ["MemTotal:", str(1 << 30)]
    pages = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
    assert files[pages] == "1024\n"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"cpu": "4"}, "memory is not in it"),
        ({"cpu": "4", "memory": "8Gi", "hugepages-3Mi": "6Mi"}, "hugepages-3Mi"),
    ],
)
def test_a_capacity_that_no_machine_has_is_refused(wrong: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        capacity.hardware(wrong)


def test_why_containerd_serves_no_kubelet_is_told_in_its_words(tmp_path: Path) -> None:
    listed = "Type:    io.containerd.grpc.v1\nID:      cri\nError:\n    Code:     Unknown\n"
    assert cri.read(listed) == ""
    refused = cri.read(f"{listed}    Message:  invalid plugin config\n")
    assert refused == "containerd runs without its plugin cri: invalid plugin config"
    assert not cri.passes(refused)
    busy = cri.read(f"{listed}    Message:  couldn't initialize inotify: too many open files\n")
    assert cri.passes(busy)
    assert "fs.inotify.max_user_instances" in busy
    silent = tmp_path / "ctr"
    silent.write_text("#!/bin/sh\necho 'failed to dial: context deadline exceeded' >&2\nexit 1\n")
    silent.chmod(0o755)
    words = cri.fault([str(silent)])
    assert "context deadline exceeded" in words
    # It may answer at another time.
    assert cri.passes(words)
