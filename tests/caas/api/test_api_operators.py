"""What operators see of the cluster, and that nobody else does."""

from collections.abc import Mapping
from typing import Any

import pytest

from caas.api.overview import differences, machine
from gpuclusters.lease.placement import Outage, Why, outages
from tests.caas.api.apikit import (
    CASES,
    Api,
    kind,
    lease,
    node,
    played,
    playing,
    settings,
    tenancy,
)

GROUP = "gpu-operators"
HELD, QUARANTINED = CASES["held"], CASES["quarantined"]
with_operators = playing(operatorGroup=GROUP)


async def looked(api: Api, tenant: Any = None, path: str = "cluster", **claims: Any) -> Any:
    """What somebody is answered who says this of itself, by default an operator."""
    headers = api.issuer.bearer(tenant, **{"groups": ["everybody", GROUP], **claims})
    return await api.client.get(f"/v1/{path}", headers=headers)


def cuts(layout: bool, *partitions: int) -> Any:
    """A host of the tests with these partitions."""
    host = settings().hosts[0]
    changed = {"declared_layout": layout, "partitions": partitions or host.partitions}
    return host.model_copy(update=changed)


def leases(stated: Mapping[int, Any]) -> dict[str, Any]:
    """Those of the first machine by name, free but for what is stated of a module."""
    found = {}
    for module in sorted({*range(1, 9), *stated}):
        said = stated.get(module, {})
        if said is not None:
            body = lease("hgx-01", module, **said)
            body["spec"]["pci"] = said.get("pci", body["spec"]["pci"])
            found[body["metadata"]["name"]] = body
    return found


@pytest.mark.parametrize(("claims", "answer"), CASES["operators"], ids=str)
@pytest.mark.attack(
    by="a tenant",
    tries="read what operators see: machines, leases, other tenants",
    stopped_by="the claim `groups` of its token, which the issuer signs and the API asks for",
)
@with_operators
async def test_the_group_in_the_token_decides_who_is_an_operator(
    api: Api, claims: dict[str, Any], answer: str
) -> None:
    found = await looked(api, **{"tenant": "acme", **claims})
    assert kind(found) == answer
    if answer != "200":
        assert found.json().keys() == {"type", "title", "status", "detail", "requestId"}


@pytest.mark.parametrize("groups", [[GROUP], [""], [None], None])
@played
async def test_without_a_group_in_the_settings_nobody_is_an_operator(api: Api, groups: Any) -> None:
    for tenant, answer in (("acme", "403 operators-only"), (None, "403 no-tenancy")):
        assert kind(await looked(api, tenant, groups=groups)) == answer


@with_operators
async def test_an_operator_is_not_a_tenant_by_that(api: Api) -> None:
    container = f"containers/{await api.made()}"
    for path in (container, f"{container}/logs", "containers", "tenancy", "capacity"):
        assert kind(await looked(api, path=path)) == "403 no-tenancy"
    # As a tenant it sees its own alone.
    assert kind(await looked(api, "globex", container)) == "404 not-found"


@with_operators
async def test_operators_see_machines_leases_and_tenants(api: Api) -> None:
    await api.post("acme", gpus=2)
    for module in (1, 3):
        api.cluster.put("gpuleases", lease("hgx-01", module, **HELD))
    api.cluster.put("nodes", node("hgx-02", cordoned=True))
    await api.happens("tenancies", tenancy("initech", gpus=0, ready=False))
    answer = await looked(api)
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert said["gpus"]["free"] == 6
    one, two = said["machines"]
    assert (one["name"], one["outage"], len(one["partitions"])) == ("hgx-01", None, 15)
    assert (two["outage"], two["message"]) == ("Cordoned", "hgx-02 is cordoned")
    gpu = one["partitions"][0]["gpus"][0]
    assert (gpu["phase"], gpu["tenant"], gpu["container"]) == ("Leased", "acme", "c-1")
    assert [(one["tenant"], one["ready"], one["reason"]) for one in said["tenants"]] == [
        ("acme", True, None),
        ("globex", True, None),
        ("initech", False, "QuotaNotEnforced"),
    ]
    acme = said["tenants"][0]
    assert acme["containers"] == {"queued": 1}
    assert acme["gpus"] == {"quota": 4, "used": 0}


def test_a_declared_layout_is_shown_as_it_is_cut() -> None:
    made = machine(cuts(True, 1, 5, 6), leases({5: QUARANTINED}), None)
    shown = [(p.id, p.state.value, [gpu.module for gpu in p.gpus]) for p in made.partitions]
    assert shown == [
        (1, "free", [1, 2, 3, 4]),
        (5, "broken", [5, 7]),
        (6, "free", [6, 8]),
    ]
    lost = made.partitions[1].gpus[0]
    assert (lost.phase, lost.reason, lost.tenant) == ("Quarantined", "FirmwareChanged", "globex")


def test_a_board_that_leases_cut_is_shown_as_they_do() -> None:
    there = leases({1: HELD, 3: HELD, 8: None})
    away = outages(["hgx-01"], {"hgx-01": node("hgx-01", ready="False")})["hgx-01"]
    made = machine(cuts(False), there, away)
    shown = [(p.id, p.state.value, [gpu.module for gpu in p.gpus]) for p in made.partitions]
    alone = [(None, "unschedulable", [module]) for module in (2, 4, 5, 6, 7)]
    assert shown == [(3, "busy", [1, 3]), *alone, (None, "busy", [8])]
    assert made.partitions[-1].gpus[0].phase is None
    assert made.outage is Why.NOT_READY


@pytest.mark.parametrize(("stated", "said"), CASES["differences"])
def test_what_is_not_as_declared_is_told(stated: dict[int, Any], said: list[str]) -> None:
    wanted = settings().model_copy(update={"hosts": (cuts(True, 1, 2),)})
    gone = None in stated.values()
    away = {"hgx-01": Outage(Why.GONE, "the cluster has no node hgx-01")} if gone else {}
    found = differences(wanted, leases(stated), away)
    assert [f"{one.object}: {one.problem}" for one in found] == said
