"""Two tenants cannot talk: the policies that we write, enforced by Cilium itself, tried with packets.

Whatever has to be closed is shown to be alive by somebody who reaches it: `plain` is no tenant's.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from gpuclusters.tenancy import proof as tenancy_proof
from lab import nodes
from lab.nodes.network import token
from tests.cilium import network as cilium
from tests.cilium import programs as cilium_programs
from tests.fixtures.tables import beside
from tests.fixtures.waiting import eventually
from tests.lab.nodes import this_machine
from tests.lab.nodes.policy_world import (
    FABRIC_MANAGER,
    KUBELET,
    NAMED,
    PROGRAMS,
    WEB,
    World,
    fill,
    policy,
)
from tests.lab.nodes.real_lab import REAL_NODE, own_cluster
from tests.lab.nodes.this_machine import Seen

pytestmark = REAL_NODE

REACH: dict[str, dict[str, list[str]]] = beside(__file__, "policies.yaml")


@pytest.fixture(scope="module")
def before() -> Seen:
    """The machine without these nodes."""
    return this_machine.seen()


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, tools_at_hand: None, before: Seen
) -> Iterator[World]:
    """Tenants on two nodes, and servers beside them."""
    # Built in minutes, which no test does.
    if cilium_programs.missing():
        pytest.skip("Cilium is not in the cache of tools; get it once: python -m tests.cilium")
    folder = tmp_path_factory.mktemp("lab")
    with own_cluster(folder, ("real-01", "real-02"), network=cilium.__name__) as real:
        made = fill(real, nodes.status(real.folder))
        with made.served(tmp_path_factory.mktemp("www")):
            yield made


@pytest.mark.parametrize("pod", REACH)
def test_a_pod_reaches_and_finds_what_it_may_and_nothing_else(world: World, pod: str) -> None:
    """Two tenants cannot talk, whoever of them tries."""
    row = REACH[pod]
    world.exactly(pod, row.get("opens", ()), row.get("closed", ()))
    for name in row.get("finds", ()):
        eventually(lambda name=name: world.answered(pod, name), f"{name} is answered")
    assert [name for name in row.get("finds-not", ()) if world.answered(pod, name)] == []


@pytest.mark.attack(
    by="a tenant",
    tries="send data out of a closed namespace in the names that it asks the cluster's DNS for",
    stopped_by="Cilium's DNS proxy, which lets a tenant ask for its own services and its rules' names",
)
def test_a_closed_tenant_asks_for_no_name_but_its_own_services(world: World) -> None:
    own = "web.acme.svc.cluster.local"
    others = ("web.zeta.svc.cluster.local", "kubernetes.default.svc.cluster.local")
    eventually(lambda: world.answered("acme/one", own), "its own service is found")
    for name in (f"c2VjcmV0.{NAMED['unnamed']}", *NAMED.values(), *others):
        assert not world.answered("acme/one", name), name
    # By somebody else each is answered.
    for name in (*NAMED.values(), *others):
        eventually(lambda name=name: world.answered("plain/one", name), f"{name} is answered")


@pytest.mark.attack(
    by="a tenant",
    tries="have a name of its own, which its rules allow, lead to a BMC",
    stopped_by="the policy of all tenants, which denies the addresses whatever name led there",
)
def test_a_name_that_leads_to_a_bmc_opens_nothing(world: World) -> None:
    named = f"{NAMED['bmc']}:443"
    world.exactly("zeta/one", [f"{NAMED['named']}:443"], [named, "bmc:443"])
    world.exactly("plain/one", [named])


def test_only_the_node_of_a_pod_comes_in(world: World) -> None:
    at, (own, other) = world.addresses["acme/one"], world.status.nodes.values()

    def enters(node: nodes.RunningNode) -> bool:
        line = ["timeout", "10", "bash", "-c", f"exec 3<>/dev/tcp/{at}/{WEB}"]
        done = subprocess.run(nodes.command_in(node, line), check=False, capture_output=True)
        return done.returncode == 0

    # As the kubelet that asks it whether it works.
    eventually(lambda: enters(own), "its own node comes in")
    assert not enters(other)


@pytest.mark.attack(
    by="a tenant",
    tries="reach the cluster's programs, as a collector of metrics too, once a policy lets it out",
    stopped_by="the policy of each program's namespace, which lets no tenant's pod in",
)
def test_no_tenant_reaches_the_programs(world: World) -> None:
    targets = [f"{name}/{pod}" for name in PROGRAMS for pod in ("one", "two")]
    targets += [f"{target}:{FABRIC_MANAGER}" for target in targets]
    for pod in ("wide/one", "wide/two"):
        world.exactly(pod, ["plain/two"], targets)


@pytest.mark.attack(
    by="the API's account",
    tries="reach machines, BMCs or strangers from a program that it took over",
    stopped_by="the policy of each program's namespace: the API reaches its issuer and no machine",
)
def test_a_program_reaches_what_it_needs_and_nothing_else(world: World) -> None:
    machines = [f"node-1:{KUBELET}", f"node-2:{KUBELET}", "files:2049"]
    machines += ["bmc:443", f"{NAMED['deep']}:443"]
    neighbours = [f"api/two:{KUBELET}", f"device-plugin/two:{KUBELET}"]
    inside = ["unnamed:443", "public:443", "plain/one", "files", *neighbours]
    # The API server as programs reach it: nobody has to look its address up.
    server = world.real.got("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
    api, issuer = f"{server}:443", f"{NAMED['named']}:443"
    world.exactly("controllers/one", [*machines, api], inside)
    world.exactly("api/one", [issuer, api], [*machines, *inside])
    world.exactly("device-plugin/one", [api], [*machines, *inside, issuer])


def test_what_cilium_refuses_is_said_to_be_invalid(world: World) -> None:
    rule = {
        "endpointSelector": {},
        "egress": [{"toEndpoints": [{}], "toFQDNs": [{"matchName": "example.com"}]}],
    }
    wrong = policy("plain", "wrong", specs=[rule])
    world.apply(wrong)
    eventually(lambda: _judged(_live(world, wrong)) == "tenancy.invalid", "it is refused")
    # Nothing of it is in force: the pods of its namespace are as open as before.
    world.exactly("plain/one", ["plain/two"])
    world.real.kubectl("delete", "cnp/wrong", "--namespace=plain")


def test_our_policies_are_valid_and_agents_are_up(world: World) -> None:
    for ours in world.policies():
        live = _live(world, ours)
        assert _judged(live) is None
        # Its kinds add nothing to what we write: whoever compares finds no difference.
        assert {key: live.get(key) for key in ("spec", "specs")} == {
            key: ours.get(key) for key in ("spec", "specs")
        }
    found = json.loads(world.real.kubectl("get", "nodes", "--output=json"))["items"]
    assert tenancy_proof.network_agents({}, found) is None


def _judged(live: dict[str, Any]) -> str | None:
    """The code of what our program makes of what Cilium says of a policy."""
    fault = tenancy_proof.network_policy(live)
    return fault.code if fault else None


def _live(world: World, ours: dict[str, Any]) -> dict[str, Any]:
    named = f"{ours['kind']}/{ours['metadata']['name']}"
    where = f"--namespace={ours['metadata'].get('namespace', 'default')}"
    found: dict[str, Any] = json.loads(world.real.kubectl("get", named, where, "--output=json"))
    return found


def test_policies_stay_in_force_while_an_agent_is_away(world: World) -> None:
    node = world.status.nodes[world.real.names[0]]
    selected = f"labelSelector=k8s-app%3Dcilium&fieldSelector=spec.nodeName%3D{node.name}"

    def restarts() -> int:
        (pod,) = world.real.got(f"/api/v1/namespaces/kube-system/pods?{selected}")["items"]
        return int(pod["status"]["containerStatuses"][0]["restartCount"])

    before = restarts()
    for process in psutil.Process(node.pid).children(recursive=True):
        # Others come and go meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "cilium-agent":
                process.kill()
    world.exactly("acme/one", ["acme/two"], ["plain/one"])
    eventually(lambda: restarts() > before, "it is started again")


def test_nothing_of_cilium_is_left_on_the_machine(world: World, before: Seen) -> None:
    own = token(world.real.folder)
    running = this_machine.seen(world.real.folder)
    nodes.stop(world.real.folder)
    stopped = this_machine.seen(world.real.folder)
    assert this_machine.of(stopped, own) == []
    assert this_machine.changed(running, stopped, world.real.folder) == {}
    assert this_machine.changed(before, stopped, world.real.folder) == {}
