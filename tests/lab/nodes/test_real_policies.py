"""Two tenants cannot talk: the policies that we write, enforced by Cilium itself, tried with packets.

Whatever has to be closed is shown to be alive by somebody who reaches it: `plain` is no tenant's.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psutil
import pytest

from gpuclusters.tenancy import isolation, programs
from gpuclusters.tenancy import proof as tenancy_proof
from gpuclusters.tenancy.programs import Program
from lab import nodes
from lab.nodes.network import token
from tests.cilium import network as cilium
from tests.cilium import programs as cilium_programs
from tests.fixtures.waiting import eventually
from tests.lab.nodes import beside_nodes, kernel_programs, this_machine
from tests.lab.nodes.policy_world import (
    ACCOUNTS,
    FABRIC_MANAGER,
    KUBELET,
    METADATA,
    NAMED,
    PORTS,
    WEB,
    World,
    apply,
    egress,
    fill,
    lead_out,
    network,
    reach,
)
from tests.lab.nodes.real_lab import REAL_NODE, own_cluster
from tests.lab.nodes.this_machine import Seen

pytestmark = REAL_NODE


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
    with ExitStack() as stack:
        names = ("real-01", "real-02")
        folder = tmp_path_factory.mktemp("lab")
        real = stack.enter_context(own_cluster(folder, names, network=cilium.__name__))
        status = nodes.status(real.folder)
        made = fill(real, status)
        at = made.addresses
        ports = {
            at["files"]: (2049, WEB),
            METADATA: (80,),
            at["bmc"]: (443,),
            at["public"]: (443, 22),
        }
        ports |= {at[name]: (443,) for name in NAMED}
        stack.enter_context(beside_nodes.serving(status, tmp_path_factory.mktemp("www"), ports))
        lead_out(status, at["files"])
        yield made


def test_a_tenant_reaches_its_own_pods_on_its_node_and_on_another(world: World) -> None:
    for pod, other in (("one", "two"), ("two", "one")):
        world.exactly(f"acme/{pod}", [world.at(f"acme/{other}"), world.at("acme/web")])


@pytest.mark.parametrize("pod", ["acme/one", "acme/two", "zeta/one", "zeta/two"])
def test_two_tenants_cannot_talk(world: World, pod: str) -> None:
    tenant = pod.split("/")[0]
    others = [place for place in ("acme", "zeta", "late", "plain") if place != tenant]
    closed = [world.at(f"{place}/{name}") for place in others for name in ("one", "two", "web")]
    world.exactly(pod, [world.at(f"{tenant}/web")], closed)


def test_who_is_no_tenant_reaches_no_tenant(world: World) -> None:
    closed = [world.at(f"{place}/{name}") for place in ("acme", "late") for name in ("one", "web")]
    world.exactly("plain/one", [world.at("plain/web"), world.at("plain/two")], closed)


def test_without_a_policy_of_its_own_a_tenant_reaches_nothing_yet(world: World) -> None:
    closed = [world.at(name) for name in ("late/one", "late/web", "plain/one")]
    assert world.reached("late/two", [*closed, f"{NAMED['named']}:443", "10.96.0.10:53"]) == set()
    # A pod reaches itself, also through a Service: Cilium asks no policy about that.
    itself = [world.at("late/one"), world.at("late/web")]
    world.exactly("late/one", itself, [world.at("late/two"), world.at("plain/one")])


def test_only_names_that_are_allowed_are_reached(world: World) -> None:
    opened = [f"{NAMED['named']}:443"]
    world.exactly("zeta/one", opened, [f"{NAMED['unnamed']}:443", world.at("unnamed", 443)])
    world.exactly("plain/one", [f"{name}:443" for name in NAMED.values()])
    assert world.reached("acme/one", opened) == set()


def test_an_asterisk_stands_for_one_part_of_a_name_and_two_for_several(world: World) -> None:
    opened = [f"{NAMED['wild']}:443", f"{NAMED['tree']}:443"]
    world.exactly("zeta/two", opened, [f"{NAMED['deep']}:443"])


def _answered(world: World, pod: str, name: str) -> bool:
    namespace, called = pod.split("/")
    return world.real.run_in(namespace, called, "nslookup", name).returncode == 0


OWN = "web.acme.svc.cluster.local"
OTHERS = ("web.zeta.svc.cluster.local", "kubernetes.default.svc.cluster.local")


@pytest.mark.attack(
    by="a tenant",
    tries="send data out of a closed namespace in the names that it asks the cluster's DNS for",
    stopped_by="Cilium's DNS proxy, which lets a tenant ask for its own services and its rules' names",
)
def test_a_closed_tenant_asks_for_no_name_but_its_own_services(world: World) -> None:
    eventually(lambda: _answered(world, "acme/one", OWN), "its own service is found")
    for name in (f"c2VjcmV0.{NAMED['unnamed']}", *NAMED.values(), *OTHERS):
        assert not _answered(world, "acme/one", name), name
    # By somebody else each is answered.
    for name in (*NAMED.values(), *OTHERS):
        eventually(lambda name=name: _answered(world, "plain/one", name), f"{name} is answered")


def test_a_tenant_finds_its_services_by_every_form_of_their_names(world: World) -> None:
    forms = ("web", "web.acme", "web.acme.svc", "web.acme.svc.cluster.local")
    world.exactly("acme/two", [f"{form}:{WEB}" for form in forms])


def test_a_tenant_asks_for_the_names_of_its_rules_and_no_others(world: World) -> None:
    opened = [NAMED[key] for key in ("named", "wild", "tree")]
    for name in (*opened, "kubernetes.default.svc.cluster.local"):
        eventually(lambda name=name: _answered(world, "zeta/one", name), f"{name} is answered")
    for name in (NAMED["unnamed"], NAMED["deep"], "web.acme.svc.cluster.local"):
        assert not _answered(world, "zeta/one", name), name


def test_who_has_the_whole_internet_asks_for_every_name(world: World) -> None:
    for name in (NAMED["unnamed"], NAMED["named"]):
        eventually(lambda name=name: _answered(world, "open/one", name), f"{name} is answered")


@pytest.mark.attack(
    by="a tenant",
    tries="have a name of its own, which its rules allow, lead to a BMC",
    stopped_by="the policy of all tenants, which denies the addresses whatever name led there",
)
def test_a_name_that_leads_to_a_bmc_opens_nothing(world: World) -> None:
    opened = [f"{NAMED['named']}:443"]
    world.exactly("zeta/one", opened, [f"{NAMED['bmc']}:443", world.at("bmc", 443)])
    world.exactly("plain/one", [f"{NAMED['bmc']}:443"])


def test_the_api_server_is_reached_by_who_is_allowed(world: World) -> None:
    api = ["kubernetes.default.svc.cluster.local:443"]
    world.exactly("zeta/one", api)
    assert world.reached("acme/one", api) == set()


def test_the_internet_is_every_address_but_those_of_private_networks(world: World) -> None:
    private = [world.at("files", 2049), world.at("unnamed", 443), world.at("metadata", 80)]
    inside = [world.at("plain/two"), world.at("acme/web")]
    world.exactly("open/one", [world.at("public", 443), world.at("public", 22)], private + inside)
    assert world.reached("acme/one", [world.at("public", 443)]) == set()


def test_only_the_node_of_a_pod_comes_in(world: World) -> None:
    at, (own, other) = world.addresses["acme/one"], world.status.nodes.values()

    def enters(node: nodes.RunningNode) -> bool:
        line = ["timeout", "10", "bash", "-c", f"exec 3<>/dev/tcp/{at}/{WEB}"]
        done = subprocess.run(nodes.command_in(node, line), check=False, capture_output=True)
        return done.returncode == 0

    # As the kubelet that asks it whether it works.
    eventually(lambda: enters(own), "its own node comes in")
    assert not enters(other)


def test_a_file_server_is_reached_at_its_ports_alone(world: World) -> None:
    world.exactly("zeta/one", [world.at("files", 2049)], [world.at("files")])
    world.exactly("plain/one", [world.at("files", 2049), world.at("files")])
    assert world.reached("acme/one", [world.at("files", 2049)]) == set()


def test_no_policy_of_others_opens_nodes_metadata_or_the_fabric_manager(world: World) -> None:
    kubelets = [f"{node.address}:{KUBELET}" for node in world.status.nodes.values()]
    denied = [
        *kubelets,
        world.at("metadata", 80),
        world.at("bmc", 443),
        world.at("plain/one", FABRIC_MANAGER),
        world.at("plain/two", FABRIC_MANAGER),
        world.at("plain/two", KUBELET),
        world.at("wide/two", FABRIC_MANAGER),
    ]
    world.exactly("plain/one", denied[:-1])
    # It is in force, and opens what is not denied.
    world.exactly("wide/one", [world.at("plain/two"), world.at("unnamed", 443)], denied)


API, CONTROLLERS, PLUGIN = (
    ACCOUNTS.namespace(one) for one in (Program.API, Program.CONTROLLERS, Program.DEVICE_PLUGIN)
)


def test_the_api_is_reached_by_what_stands_before_it_and_reaches_its_issuer(world: World) -> None:
    api, metrics = world.at(f"{API}/one"), world.at(f"{API}/one", FABRIC_MANAGER)
    world.exactly("plain/one", [api], [metrics])
    # Only a collector of metrics gets those.
    world.exactly("plain/two", [api, metrics])
    for namespace in (CONTROLLERS, PLUGIN):
        closed, its = world.at(f"{namespace}/one"), world.at(f"{namespace}/one", FABRIC_MANAGER)
        world.exactly("plain/two", [its], [closed])
    closed = [world.at("bmc", 443), world.at("unnamed", 443), world.at("files", 2049)]
    world.exactly(f"{API}/one", [f"{NAMED['named']}:443"], [*closed, world.at("plain/one")])


@pytest.mark.attack(
    by="a tenant",
    tries="reach the cluster's programs, as a collector of metrics too, once a policy lets it out",
    stopped_by="the policy of each program's namespace, which lets no tenant's pod in",
)
def test_no_tenant_reaches_the_programs(world: World) -> None:
    programs = [
        world.at(f"{namespace}/{pod}", port)
        for namespace in (API, CONTROLLERS, PLUGIN)
        for pod in ("one", "two")
        for port in (WEB, FABRIC_MANAGER)
    ]
    for pod in ("wide/one", "wide/two"):
        world.exactly(pod, [world.at("plain/two")], programs)


@pytest.mark.attack(
    by="the API's account",
    tries="reach machines, BMCs or strangers from a program that it took over",
    stopped_by="the policy of each program's namespace: the API reaches its issuer and no machine",
)
def test_a_program_reaches_what_it_needs_and_nothing_else(world: World) -> None:
    own, other = world.status.nodes.values()
    machines = [f"{own.address}:{KUBELET}", f"{other.address}:{KUBELET}", world.at("files", 2049)]
    controllers = [world.at("bmc", 443), f"{NAMED['deep']}:443"]
    strangers = [world.at("unnamed", 443), world.at("public", 443), world.at("plain/one")]
    neighbours = [world.at(f"{API}/two", KUBELET), world.at(f"{PLUGIN}/two", KUBELET)]
    files = world.at("files")
    inside = [*strangers, *neighbours, files]
    world.exactly(f"{CONTROLLERS}/one", [*machines, *controllers, *_by_address(world)], inside)
    beyond = [*machines, *controllers, *inside]
    world.exactly(f"{API}/one", [f"{NAMED['named']}:443", *_by_address(world)], beyond)
    world.exactly(f"{PLUGIN}/one", _by_address(world), [*beyond, f"{NAMED['named']}:443"])


def _by_address(world: World) -> list[str]:
    """The API server as programs reach it: nobody has to look its address up."""
    found = world.real.kubectl(
        "get", "service/kubernetes", "--namespace=default", "--output=jsonpath={.spec.clusterIP}"
    )
    return [f"{found}:443"]


def test_a_program_asks_for_the_names_that_it_connects_to_and_no_others(world: World) -> None:
    eventually(lambda: _answered(world, f"{API}/one", NAMED["named"]), "the issuer is found")
    for pod, name in (
        (f"{API}/one", NAMED["unnamed"]),
        (f"{CONTROLLERS}/one", NAMED["named"]),
        (f"{PLUGIN}/one", NAMED["named"]),
    ):
        assert not _answered(world, pod, name), pod


def test_what_cilium_refuses_is_said_to_be_invalid(world: World) -> None:
    rule = {
        "endpointSelector": {},
        "egress": [{"toEndpoints": [{}], "toFQDNs": [{"matchName": "example.com"}]}],
    }
    metadata = {"name": "wrong", "namespace": "plain"}
    wrong = {"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": metadata}
    apply(world.real, wrong | {"specs": [rule]})
    eventually(lambda: _judged(world, "cnp/wrong", "plain") == "tenancy.invalid", "it is refused")
    # Nothing of it is in force: the pods of its namespace are as open as before.
    world.exactly("plain/one", [world.at("plain/two")])
    world.real.kubectl("delete", "cnp/wrong", "--namespace=plain")


def test_our_policies_are_valid_and_agents_are_up(world: World) -> None:
    for tenant, allowed in egress(world.addresses).items():
        if allowed is not None:
            assert _judged(world, "cnp/isolate", tenant) is None
            # Its kinds add nothing to what we write: whoever compares finds no difference.
            rules = isolation.network_policy(allowed, network(world.addresses), tenant)
            assert _live(world, "cnp/isolate", tenant)["specs"] == rules
    for program, spec in programs.network_policies(
        reach(world.addresses, world.status), PORTS, monitored=True
    ).items():
        namespace = ACCOUNTS.namespace(program)
        assert _judged(world, f"cnp/{programs.POLICY}", namespace) is None
        assert _live(world, f"cnp/{programs.POLICY}", namespace)["spec"] == spec
    rule = isolation.baseline(network(world.addresses))
    assert _live(world, "ccnp/gpu-clusters-tenants", "default")["spec"] == rule
    assert _judged(world, "ccnp/gpu-clusters-tenants", "default") is None
    found = json.loads(world.real.kubectl("get", "nodes", "--output=json"))["items"]
    assert tenancy_proof.network_agents({}, found) is None


def _judged(world: World, policy: str, namespace: str) -> str | None:
    """The code of what our program makes of what Cilium says of a policy."""
    fault = tenancy_proof.network_policy(_live(world, policy, namespace))
    return fault.code if fault else None


def _live(world: World, policy: str, namespace: str) -> dict[str, Any]:
    found = world.real.kubectl("get", policy, f"--namespace={namespace}", "--output=json")
    live: dict[str, Any] = json.loads(found)
    return live


def test_policies_stay_in_force_while_an_agent_is_away(world: World) -> None:
    def restarts(pod: dict[str, Any]) -> int:
        return int(pod["status"]["containerStatuses"][0]["restartCount"])

    (agent,) = _agents(world, world.real.names[0])
    node = world.status.nodes[world.real.names[0]]
    for process in psutil.Process(node.pid).children(recursive=True):
        # Others come and go meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "cilium-agent":
                process.kill()
    world.exactly("acme/one", [world.at("acme/two")], [world.at("plain/one")])
    eventually(
        lambda: restarts(_agents(world, node.name)[0]) > restarts(agent), "it is started again"
    )


def _agents(world: World, node: str) -> list[dict[str, Any]]:
    found = world.real.kubectl(
        *("get", "pods", "--namespace=kube-system", "--selector=k8s-app=cilium"),
        *(f"--field-selector=spec.nodeName={node}", "--output=json"),
    )
    pods: list[dict[str, Any]] = json.loads(found)["items"]
    return pods


def test_nothing_of_cilium_is_left_on_the_machine(world: World, before: Seen) -> None:
    own = token(world.real.folder)
    ours = programs_of(world)
    assert ours
    running = this_machine.seen(world.real.folder)
    nodes.stop(world.real.folder)
    stopped = this_machine.seen(world.real.folder)
    assert this_machine.of(stopped, own) == []
    assert this_machine.changed(running, stopped, world.real.folder) == {}
    assert this_machine.changed(before, stopped, world.real.folder) == {}
    eventually(lambda: not ours & {*kernel_programs.loaded()}, "the kernel lets go of its programs")


def programs_of(world: World) -> set[int]:
    """The numbers of Cilium's programs at the interfaces of this lab: another may run beside it."""
    names = kernel_programs.loaded()
    cilium = {number for number, name in names.items() if name.startswith("cil_")}
    at = {n for node in world.status.nodes.values() for n in kernel_programs.attached(node.pid)}
    # An older kernel does not say where they are; of one lab alone are all.
    return cilium & at if at else cilium
