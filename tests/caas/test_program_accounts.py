"""Whoever takes the account of one of the cluster's programs gets no further than that program.

Each attack is made twice: with the account's own token, as one who took it would, and with the account's name
and every right, so that admission holds alone where a role is too wide one day.
"""

from __future__ import annotations

import copy
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from gpuclusters.container_api import container
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.programs import Program
from tests.caas.leasesteps import EVIDENCE, HOLDER, drive, new_lease, shown
from tests.caas.pods import contained
from tests.fixtures.accounts import Account, ProgramAccounts
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tables import beside
from tests.fixtures.tenancies import (
    GPU,
    LEASES,
    ON_DEMAND,
    TENANCIES,
    Request,
    running,
    tenants_of,
)
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.lab

DATA: dict[str, Any] = beside(__file__, "test_program_accounts.attacks.yaml")
DRY = "?dryRun=All"
every_way = pytest.mark.parametrize("every_right", [False, True], ids=["token", "every right"])


def namespaced(namespace: str, rest: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}{rest}"


@dataclass(frozen=True)
class World:
    """The accounts, a tenant whose controller has bound the programs' roles, and a foreign namespace."""

    accounts: ProgramAccounts
    of: Mapping[Program, Account]
    tenant: str
    foreign: str

    @property
    def request(self) -> Request:
        return self.accounts.request


@pytest.fixture(scope="module")
def world(kube_api: KubeCluster, accounts: ProgramAccounts) -> Iterator[World]:
    request, foreign = accounts.request, f"foreign-{secrets.token_hex(4)}"
    request.apply(namespaced(foreign), "v1", "Namespace")
    # Even if somebody had labelled it, it is not the controllers' to delete.
    labels = {"labels": {TENANT_LABEL: "x"}}
    request.apply(namespaced("kata-system"), "v1", "Namespace", metadata=labels)
    with tenants_of(request) as tenants:
        name = tenants.make()
        with running(kube_api, tenants.prefix):
            tenants.ready(name)
        yield World(accounts, {one: accounts.unbound(one) for one in Program}, name, foreign)
    request("DELETE", namespaced(foreign))


def refused(answer: tuple[int, str], policy: str = "") -> None:
    status, text = answer
    assert status == 403, text
    assert policy in text


def intruder(**spec: Any) -> dict[str, Any]:
    """A pod that Pod Security's level `restricted` would let in, but for this."""
    body = contained("x", "intruder")
    del body["metadata"]["namespace"]
    body["spec"] |= spec
    return body


def on_demand() -> dict[str, Any]:
    """The tenancy that the API makes for a tenant who has none."""
    made = ON_DEMAND.tenancy(f"new-{secrets.token_hex(4)}")
    assert made is not None
    return made


SUBJECTS = {
    "controllers": {"name": "controllers", "namespace": "gpu-clusters-controllers"},
    "a tenant": {"name": "default", "namespace": "tenancy-x"},
}


def body_of(ask: dict[str, Any]) -> Any:
    if "pod" in ask:
        return intruder(**ask["pod"])
    if "bind" in ask:
        role, *subjects = ask["bind"]
        api_group = {"apiGroup": "rbac.authorization.k8s.io"}
        return {
            "metadata": {"name": "intruder"},
            "roleRef": {**api_group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", **SUBJECTS[one]} for one in subjects],
        }
    return on_demand() if "tenancy" in ask else ask.get("body")


@pytest.mark.parametrize(
    ("name", "every_right"),
    [(name, way) for name, case in DATA["attacks"].items() for way in range(len(case["said"]))],
)
def test_no_account_gets_further_than_its_program(
    world: World, name: str, every_right: int
) -> None:
    case = DATA["attacks"][name]
    for program, ask in itertools.product(case["accounts"], case["asks"]):
        verb, template = next(iter(ask.items()))
        path = template.format(tenant=world.tenant, foreign=world.foreign)
        account = world.of[Program(program)]
        answer = account(verb, path + DRY, body_of(ask), every_right=bool(every_right))
        refused(answer, case["said"][every_right])


def test_the_api_makes_and_ends_the_containers_of_a_tenant(world: World) -> None:
    wanted = contained(world.tenant)
    path = namespaced(world.tenant, "/pods")
    status, text = world.accounts.api("POST", path, wanted)
    assert status == 201, text
    status, text = world.accounts.api("DELETE", f"{path}/{wanted['metadata']['name']}")
    assert status == 200, text


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    body = copy.deepcopy(body)
    *parents, last = path.split(".")
    at = body
    for key in parents:
        at = at[key]
    if value is None:
        at.pop(last, None)
    else:
        at[last] = value
    return body


@pytest.mark.attack(
    by="the API's account",
    tries="make a pod in a tenant's namespace of another shape than the API's",
    stopped_by="admission: the tenants' pod policy and the rules for pods of programs",
)
@every_way
@pytest.mark.parametrize("shape", DATA["shapes"])
def test_the_api_makes_containers_and_nothing_else(
    world: World, shape: str, every_right: bool
) -> None:
    intruder = changed(contained(world.tenant), *DATA["shapes"][shape])
    path = namespaced(world.tenant, "/pods") + DRY
    refused(world.accounts.api("POST", path, intruder, every_right=every_right))


@pytest.mark.attack(
    by="the API's account",
    tries="delete a pod that is no container",
    stopped_by="admission: the API deletes what carries a container's label",
)
@every_way
def test_the_api_deletes_containers_and_nothing_else(world: World, every_right: bool) -> None:
    sound = contained(world.tenant)
    sound["metadata"]["labels"].pop(container.CONTAINER_LABEL)
    path = namespaced(world.tenant, "/pods")
    status, answer = world.request("POST", path, sound)
    assert status == 201, answer
    path += f"/{sound['metadata']['name']}{DRY}"
    refused(
        world.accounts.api("DELETE", path, every_right=every_right), "gpu-clusters-program-pods"
    )


@pytest.mark.attack(
    by="the controllers' account",
    tries="make a pod in a tenant's namespace",
    stopped_by="admission: the controllers try pods as dry runs",
)
@every_way
def test_the_controllers_try_pods_and_make_none(world: World, every_right: bool) -> None:
    wanted, path = contained(world.tenant), namespaced(world.tenant, "/pods")
    account = world.accounts.controllers
    refused(account("POST", path, wanted, every_right=every_right), "gpu-clusters-program-pods")
    status, text = account("POST", path + DRY, wanted, every_right=every_right)
    assert status == 201, text


@every_way
def test_the_api_makes_a_tenancy_of_the_template(world: World, every_right: bool) -> None:
    def answer() -> tuple[int, str]:
        return world.accounts.api("POST", TENANCIES + DRY, on_demand(), every_right=every_right)

    # The role is bound within a moment.
    eventually(lambda: answer()[0] == 201, "a tenancy that is let in")


@pytest.mark.attack(
    by="the API's account",
    tries="give a tenant that has none more than the template of tenancies on demand",
    stopped_by="admission: a Tenancy that the API makes is the template's, field by field",
)
@every_way
@pytest.mark.parametrize(("path", "value"), DATA["tenancies"])
def test_a_tenancy_beyond_the_template_is_refused(
    world: World, path: str, value: Any, every_right: bool
) -> None:
    body = changed(on_demand(), path, value)
    if path == "spec.gpus":
        body = changed(body, "spec.quota.hard", {f"requests.{GPU}": "8", "pods": "10"})
    answer = world.accounts.api("POST", TENANCIES + DRY, body, every_right=every_right)
    status, text = answer
    # What is no Tenancy at all is refused by its definition.
    assert status in (403, 422), text
    assert status == 422 or "gpu-clusters-program-tenancies" in text


@dataclass(frozen=True)
class Leased:
    """A GPU of the plugin's own node and one of another, both being reset."""

    accounts: ProgramAccounts
    plugin: Account
    own: str
    other: str

    def lease(self, name: str) -> dict[str, Any]:
        found = self.accounts.request.get(f"{LEASES}/{name}")
        assert found
        return found

    def write(
        self, account: Account, name: str, change: Callable[[Status], None], **how: Any
    ) -> tuple[int, str]:
        """Read the lease, change its status, put it."""
        found = self.lease(name)
        change(found["status"])
        return account("PUT", f"{LEASES}/{name}/status", found, **how)

    def lead(self, name: str, *phases: str, **more: Any) -> None:
        """Through these phases, as the controllers do it."""
        drive(self.accounts.request.get, self.accounts.controllers, name, *phases, **more)

    def allocated(self, name: str) -> bool:
        return bool(self.lease(name)["status"]["holder"]["allocated"])


Status = dict[str, Any]


@pytest.fixture
def leased(accounts: ProgramAccounts) -> Iterator[Leased]:
    request, token = accounts.request, secrets.token_hex(4)
    nodes = [f"accounts-{token}-{n}" for n in (1, 2)]
    own, other = (new_lease(request, node) for node in nodes)
    for name in (own, other):
        drive(request.get, accounts.controllers, name, "Resetting")
    plugin = accounts.device_plugin(nodes[0])
    yield Leased(accounts, plugin, own, other)
    for name in (own, other):
        request("DELETE", f"{LEASES}/{name}")
    request("DELETE", namespaced("gpu-clusters-device-plugin", f"/pods/plugin-{nodes[0]}"))


LET_GO = {**HOLDER, "admitted": True}


def to_leased(leased: Leased, name: str) -> None:
    leased.lead(name, "Scrubbing", "Verifying", conditions=shown(*EVIDENCE[1:]))
    leased.lead(name, "Free")
    leased.lead(name, "Reserved", "Activating", holder=HOLDER)
    leased.lead(name, "Leased", holder=LET_GO)


def marks(status: Status) -> None:
    status["holder"]["allocated"] = True


def disagrees(status: Status) -> None:
    condition = {"type": "KubeletAgrees", "status": "False", "reason": "HeldByAnotherPod"}
    others = [c for c in status.get("conditions", []) if c["type"] != "KubeletAgrees"]
    status["conditions"] = [*others, condition]


def test_a_device_plugin_writes_its_own_fields_of_leases_of_its_own_node(leased: Leased) -> None:
    to_leased(leased, leased.own)
    for change in (marks, disagrees):
        status, text = leased.write(leased.plugin, leased.own, change)
        assert status == 200, text
    assert leased.allocated(leased.own)
    assert [c["type"] for c in leased.lease(leased.own)["status"]["conditions"]] == [
        *EVIDENCE[1:],
        "KubeletAgrees",
    ]


@pytest.mark.attack(
    by="a machine's device plugin",
    tries="write a lease of another node",
    stopped_by="admission: the node in its token is the lease's",
)
@every_way
def test_a_device_plugin_does_not_write_leases_of_another_node(
    leased: Leased, every_right: bool
) -> None:
    to_leased(leased, leased.other)
    for change in (marks, disagrees):
        answer = leased.write(leased.plugin, leased.other, change, every_right=every_right)
        refused(answer, "of its own node only")
    assert not leased.allocated(leased.other)


@pytest.mark.attack(
    by="a machine's device plugin",
    tries="write its node's lease with a token that is of no pod",
    stopped_by="admission: a token without a node writes no lease",
)
def test_a_token_that_names_no_node_writes_no_lease(leased: Leased) -> None:
    to_leased(leased, leased.own)
    unbound = leased.accounts.unbound(Program.DEVICE_PLUGIN)
    refused(leased.write(unbound, leased.own, marks), "of its own node only")


@pytest.mark.attack(
    by="a machine's device plugin",
    tries="forge evidence of reset, clearing or verification, or a phase, of its own node's GPU",
    stopped_by="admission: only holder.allocated and KubeletAgrees are a plugin's to write",
)
@every_way
def test_a_device_plugin_forges_nothing(leased: Leased, every_right: bool) -> None:
    before = leased.lease(leased.own)["status"]
    for what, fields in DATA["forged"].items():
        said = fields | (
            {"conditions": shown(*fields["conditions"])} if "conditions" in fields else {}
        )

        def change(status: Status, said: Status = said) -> None:
            status.update(said)

        for name in (leased.own, leased.other):
            answer = leased.write(leased.plugin, name, change, every_right=every_right)
            refused(answer, "gpu-clusters-leases")
        assert leased.lease(leased.own)["status"] == before, what


@pytest.mark.attack(
    by="a machine's device plugin",
    tries="take a GPU for another pod, or let a pod go that was not admitted",
    stopped_by="admission: of a holder only `allocated` is a plugin's to write",
)
@every_way
def test_a_device_plugin_does_not_change_the_holder(leased: Leased, every_right: bool) -> None:
    to_leased(leased, leased.own)
    others = {"tenant": "globex"}, {"admitted": False}, {"podUid": "2"}, {"container": "c-2"}
    for holder in (*({**LET_GO, **other} for other in others), None):

        def forge(status: Status, holder: dict[str, Any] | None = holder) -> None:
            status["holder"] = holder

        status, text = leased.write(leased.plugin, leased.own, forge, every_right=every_right)
        assert status in (403, 422), text
        assert leased.lease(leased.own)["status"]["holder"] == LET_GO


@pytest.mark.attack(
    by="an administrator's script",
    tries="write evidence about a GPU",
    stopped_by="admission: evidence is the controllers' to write, whoever asks",
)
def test_evidence_is_refused_from_everybody_but_the_controllers(leased: Leased) -> None:
    found = leased.lease(leased.own)
    found["status"]["conditions"] = shown("ResetDone")
    status, answer = leased.accounts.request("PUT", f"{LEASES}/{leased.own}/status", found)
    assert status == 403
    assert "evidence about a GPU is the controllers' to write" in answer["message"]


@pytest.mark.attack(
    by="a machine's device plugin",
    tries="make, change or delete leases themselves",
    stopped_by="no role; admission: a plugin writes the status alone",
)
@every_way
def test_a_device_plugin_makes_and_relabels_no_lease(leased: Leased, every_right: bool) -> None:
    body = {"metadata": {"annotations": {"gpu-clusters.dev/recheck": "now"}}}
    path = f"{LEASES}/{leased.own}{DRY}"
    refused(leased.plugin("PATCH", path, body, every_right=every_right))
    refused(leased.plugin("DELETE", path, every_right=every_right))
