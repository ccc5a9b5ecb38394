"""Services, names and the way in from the machine, on two real nodes; the machine stays as it was."""

from __future__ import annotations

import http.client
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import nodes, tools
from lab.nodes.network import token
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes import this_machine
from tests.lab.nodes.real_lab import BUILD_SECONDS, RealLab, only_where_possible, real_lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS),
]

_SPACE = "network-of-real-nodes"
_SERVES = "echo $HOSTNAME > /tmp/index.html; exec httpd -f -h /tmp -p 8000"
_TRIES = 30


@pytest.fixture(scope="module")
def lab(kube_api: KubeCluster) -> Iterator[RealLab]:
    """A pod with a name of its own on each of two nodes, behind two Services; and a pod that asks."""
    with real_lab(kube_api, 2) as made:
        space = f"{_SPACE}-{made.token}"
        made.kubectl("create", "namespace", space)
        try:
            _fill(made, space)
            yield made
        finally:
            made.kubectl("delete", "namespace", space, "--wait=false")


def _fill(made: RealLab, space: str) -> None:
    for name, address in (("web", None), ("peers", "None")):
        spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]}
        manifest = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": space},
            "spec": spec | ({"clusterIP": address} if address else {}),
        }
        made.kubectl("create", "-f", "-", given=json.dumps(manifest))
    for name, node in zip(("one", "two"), made.names, strict=True):
        made.pod(
            space,
            name,
            _SERVES,
            nodeName=node,
            hostname=name,
            subdomain="peers",
            metadata={"labels": {"app": "web"}},
        )
    made.pod(space, "asks", "sleep 1000", nodeName=made.names[0])
    made.ready(space, "one", "two", "asks")


@pytest.fixture
def space(lab: RealLab) -> str:
    return f"{_SPACE}-{lab.token}"


def told(lab: RealLab, space: str, *command: str) -> str:
    return lab.run_in(space, "asks", *command).stdout


def fetched(lab: RealLab, space: str, host: str, pod: str = "asks", times: int = 1) -> set[str]:
    """What a pod gets at an address; nothing where nobody answers."""
    each = f"for i in $(seq {times}); do wget -qO- http://{host}/; done"
    return set(lab.run_in(space, pod, "sh", "-c", each).stdout.split())


def through(port: int) -> str:
    """What the machine gets at a port of its loopback; empty if nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=120) as answer:
            return str(answer.read().decode().strip())
    except (OSError, http.client.HTTPException):
        return ""


def test_a_service_leads_to_pods_of_all_nodes(lab: RealLab, space: str) -> None:
    eventually(lambda: fetched(lab, space, "web", times=_TRIES) == {"one", "two"}, "both answer")


def test_a_pod_behind_a_service_reaches_it_and_itself_through_it(lab: RealLab, space: str) -> None:
    eventually(
        lambda: fetched(lab, space, "web", "one", times=_TRIES) == {"one", "two"}, "both answer"
    )


def test_pods_are_found_by_their_own_names(lab: RealLab, space: str) -> None:
    hosts = {name: f"{name}.peers.{space}.svc.cluster.local:8000" for name in ("one", "two")}
    for name, host in hosts.items():
        # Names of what is there are known a moment later.
        eventually(
            lambda host=host: fetched(lab, space, host) != set(), f"{name} is found by its name"
        )
        assert fetched(lab, space, host) == {name}


def test_the_api_server_has_its_name(lab: RealLab, space: str) -> None:
    reach = "nc -w 30 kubernetes.default 443 </dev/null && echo reached"
    eventually(lambda: told(lab, space, "sh", "-c", reach) == "reached\n", "kubernetes.default")
    look = ("nslookup", "kubernetes.default.svc.cluster.local")
    eventually(lambda: "10.96.0.1\n" in told(lab, space, *look), "its address")


def test_names_beyond_the_cluster_do_not_exist(lab: RealLab, space: str) -> None:
    eventually(lambda: "NXDOMAIN" in told(lab, space, "nslookup", "example.com"), "an answer")


def test_names_are_answered_over_tcp_too(lab: RealLab, space: str) -> None:
    reach = "nc -w 30 10.96.0.10 53 </dev/null && echo reached"
    eventually(lambda: told(lab, space, "sh", "-c", reach) == "reached\n", "an answer")


def test_an_address_outside_of_the_lab_is_not_reached(lab: RealLab, space: str) -> None:
    done = lab.run_in(space, "asks", "sh", "-c", "nc -w 3 192.0.2.1 80 </dev/null")
    assert done.returncode != 0


def test_the_machine_reaches_a_service_by_its_entrance(lab: RealLab, space: str) -> None:
    port = nodes.entrance(lab.folder, space, "web", 80)
    eventually(lambda: through(port) != "", "the Service answers")
    assert {through(port) for _ in range(_TRIES)} == {"one", "two"}
    assert nodes.entrance(lab.folder, space, "web", 80) == port
    assert nodes.entrance(lab.folder, space, "peers", 80) != port


def test_an_entrance_finds_a_way_while_a_node_is_cut_off(lab: RealLab, space: str) -> None:
    port = nodes.entrance(lab.folder, space, "web", 80)
    eventually(lambda: through(port) != "", "the Service answers")
    # The cluster does not know yet: half of what each node tries leads to the pod of the other.
    nodes.control(lab.folder, lab.names[1], "cable", "stop")
    try:
        answers = {through(port) for _ in range(5)}
    finally:
        nodes.control(lab.folder, lab.names[1], "cable", "start")
    assert answers <= {"one", "two"}


def test_an_entrance_to_nothing_closes_what_connects(lab: RealLab, space: str) -> None:
    assert through(nodes.entrance(lab.folder, space, "none", 80)) == ""


def test_kube_proxy_is_a_program_of_the_node(lab: RealLab, space: str) -> None:
    first = lab.names[0]
    before = nodes.control(lab.folder, first, "kube-proxy", "state")
    after = nodes.control(lab.folder, first, "kube-proxy", "restart")
    assert before
    assert after not in (None, before)
    # Its rules stay while it is away.
    assert fetched(lab, space, "web")


def test_rules_are_in_the_nodes_and_none_on_the_machine(
    lab: RealLab, space: str, tmp_path: Path
) -> None:
    program = tools.ensure(["iptables"])["iptables"]
    save = program.with_name("iptables-save")
    if (program.parent / "origin").exists():
        # Unpacked by the lab, it is called by a link with the name of what is wanted.
        save = tmp_path / "iptables-save"
        save.symlink_to(program)
    node = nodes.status(lab.folder).nodes[lab.names[0]]
    assert f"{space}/web" in output(*nodes.command_in(node, [str(save)]))
    # The machine may be a node of somebody else's cluster.
    assert space not in output(str(save))


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_restart_keeps_entrances_and_a_stop_leaves_the_machine_as_it_was(
    lab: RealLab, space: str
) -> None:
    own = token(lab.folder)
    port = nodes.entrance(lab.folder, space, "web", 80)
    running = this_machine.seen(lab.folder)
    nodes.stop(lab.folder)
    try:
        stopped = this_machine.seen(lab.folder)
        assert this_machine.of(stopped, own) == []
        assert this_machine.changed(running, stopped, lab.folder) == {}
        assert through(port) == ""
    finally:
        lab.start()
    eventually(lambda: through(port) != "", "the same entrance leads there")
