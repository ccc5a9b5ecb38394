"""What is decided about real nodes without one: numbers, changes, capacity, distributions, plugins."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclusters.core.quantity import parse_quantity
from lab.control_plane import NodeSpec
from lab.control_plane.model import HGX_ALLOCATABLE, HGX_CAPACITY
from lab.nodes import OWN_CAPACITY, capacity, configuration, cri, server
from lab.nodes.distribution import UPSTREAM, Distribution
from lab.nodes.folder import NodesFolder
from lab.nodes.model import NodesSpec
from lab.nodes.network import MOST_NODES, plan

FOLDER = Path("/lab/nodes")
NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True)


def node(name: str, **labels: str) -> NodeSpec:
    return NodeSpec(name, labels, OWN_CAPACITY, OWN_CAPACITY)


def lab(*nodes: NodeSpec, plane: str = "/lab", hosts: Path | None = None) -> NodesSpec:
    return NodesSpec(Path(plane), nodes, (), hosts=hosts)


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


def test_only_what_is_different_changes() -> None:
    found = server.changes(
        lab(node("a"), node("b"), node("c")), lab(node("a", zone="1"), node("b"), node("d"))
    )
    assert (found.removed, found.added, found.relabelled) == ({"c"}, {"d"}, {"a"})


def test_a_node_with_another_capacity_is_made_anew() -> None:
    found = server.changes(lab(node("a")), lab(NodeSpec("a")))
    assert (found.removed, found.added, found.relabelled) == ({"a"}, {"a"}, frozenset())


def test_what_another_process_has_to_do_is_said() -> None:
    assert server.must_restart(lab(), lab(node("a"))) == ""
    assert "control plane" in server.must_restart(lab(), lab(plane="/other"))
    assert "hosts" in server.must_restart(lab(), lab(hosts=Path("/hosts")))


def test_nodes_and_management_controllers_have_addresses_of_their_own() -> None:
    network = plan(FOLDER, [])
    every = [address(n) for n in range(MOST_NODES) for address in (network.node, network.bmc)]
    assert len({*every, network.machine, network.api}) == 2 * MOST_NODES + 2
    assert str(network.subnet.broadcast_address) not in every


def counted(files: dict[str, str]) -> tuple[int, set[int]]:
    """What cadvisor counts, and the processors that a kubelet then puts pods on."""
    found = [path.split("/cpu")[1].split("/")[0] for path in files if path.endswith("/core_id")]
    return len(found), {int(number) for number in found}


def test_a_host_of_224_processors_is_counted_so_on_a_machine_of_two() -> None:
    machine = capacity.hardware(HGX_CAPACITY)
    assert machine is not None
    files = capacity.files(machine, [0, 1])
    assert counted(files) == (224, {0, 1})
    assert files["/proc/cpuinfo"].count("processor\t") == 224
    assert files["/proc/meminfo"].split()[:2] == ["MemTotal:", str(2 << 30)]
    pages = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
    assert files[pages] == "1024\n"
    assert files["/sys/devices/system/node/node1/distance"] == "21 10\n"


@given(st.integers(1, 512), st.integers(1, 300))
def test_every_number_of_processors_is_counted_on_every_machine(wanted: int, there: int) -> None:
    machine = capacity.Hardware(wanted, 1 << 40, {})
    count, numbers = counted(capacity.files(machine, range(there)))
    assert count == wanted
    assert numbers <= set(range(there))


def test_what_a_kubelet_keeps_leaves_what_is_allocatable() -> None:
    kept = capacity.kubelet_settings(HGX_CAPACITY, HGX_ALLOCATABLE)
    left = (
        parse_quantity("1024Gi") - capacity.EVICTION_BYTES - int(kept["systemReserved"]["memory"])
    )
    assert left == parse_quantity(HGX_ALLOCATABLE["memory"])
    assert (kept["systemReserved"]["cpu"], kept["maxPods"]) == ("4", 110)
    assert capacity.kubelet_settings(OWN_CAPACITY, OWN_CAPACITY) == {}
    assert capacity.hardware(OWN_CAPACITY) is None


def test_a_capacity_that_no_machine_has_is_refused() -> None:
    with pytest.raises(ValueError, match="memory is not in it"):
        capacity.hardware({"cpu": "4"})
    with pytest.raises(ValueError, match="hugepages-3Mi"):
        capacity.hardware({"cpu": "4", "memory": "8Gi", "hugepages-3Mi": "6Mi"})


def test_a_distribution_says_where_programs_read_and_listen() -> None:
    other = Distribution(
        name="other",
        containerd_socket="/run/other.sock",
        containerd_root="/var/lib/other",
        containerd_drop_ins=("/var/lib/other/conf.d/*.toml",),
        kubelet_drop_ins="/var/lib/other/kubelet.d",
        containerd_configuration="/var/lib/other/config.toml",
    )
    folder = NodesFolder(FOLDER).node("a")
    told = tomllib.loads(configuration.containerd(folder, Path("/runc"), other))
    assert told["imports"] == ["/var/lib/other/conf.d/*.toml"]
    assert (told["root"], told["grpc"]["address"]) == ("/var/lib/other", "/run/other.sock")
    kubelet = json.loads(configuration.kubelet(folder, node("a"), "group", other))
    assert kubelet["containerRuntimeEndpoint"] == "unix:///run/other.sock"


def test_drop_ins_of_ours_are_read_and_those_of_kata_deploy_are_not() -> None:
    patterns = [Path(pattern) for pattern in UPSTREAM.containerd_drop_ins]
    ours, katas = (
        "/etc/containerd/conf.d/50-gpu-clusters.toml",
        "/etc/containerd/conf.d/kata-deploy.toml",
    )
    assert any(Path(ours).match(str(pattern)) for pattern in patterns)
    assert not any(Path(katas).match(str(pattern)) for pattern in patterns)
    assert all("*" in str(pattern) for pattern in patterns)


def test_a_plugin_that_was_not_loaded_is_told_in_its_words() -> None:
    listed = "Type:    io.containerd.grpc.v1\nID:      cri\nError:\n    Code:     Unknown\n"
    assert cri.read(listed) == ""
    refused = cri.read(f"{listed}    Message:  invalid plugin config\n")
    assert refused == "containerd runs without its plugin cri: invalid plugin config"
    assert not cri.passes(refused)
    busy = cri.read(f"{listed}    Message:  couldn't initialize inotify: too many open files\n")
    assert cri.passes(busy)
    assert "fs.inotify.max_user_instances" in busy


def test_a_containerd_that_cannot_be_asked_is_not_said_to_serve_kubelets(tmp_path: Path) -> None:
    silent = tmp_path / "ctr"
    silent.write_text("#!/bin/sh\necho 'failed to dial: context deadline exceeded' >&2\nexit 1\n")
    silent.chmod(0o755)
    words = cri.fault([str(silent)])
    assert "context deadline exceeded" in words
    # It may answer at another time.
    assert cri.passes(words)
