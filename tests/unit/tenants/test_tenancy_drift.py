"""What counts as drift of an object that was applied."""

import copy
from typing import Any

import pytest

from gpuclusters.tenancy.objects import drifted, foreign_fields
from tests.unit.tenants.tenant_cluster import put

WANTED: dict[str, Any] = {
    "apiVersion": "cilium.io/v2",
    "kind": "CiliumNetworkPolicy",
    "metadata": {"name": "isolate", "labels": {"a": "b"}},
    "spec": {"egress": [{"toEndpoints": [{}]}]},
}


def live() -> dict[str, Any]:
    found = copy.deepcopy(WANTED)
    found["metadata"]["labels"]["other"] = "label"
    found["status"] = {"conditions": []}
    return found


def test_what_is_as_it_was_applied_has_not_drifted() -> None:
    assert not drifted(WANTED, live(), None)


OPEN_BESIDE = (["spec", "ingress"], [{"fromEntities": ["all"]}])
ANOTHER_SPEC = (["specs"], [{"egress": [{"toEntities": ["all"]}]}])


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (["spec", "egress", 0, "toCIDR"], ["0.0.0.0/0"]),
        OPEN_BESIDE,
        ANOTHER_SPEC,
        (["metadata", "labels"], {"other": "label"}),
    ],
)
def test_whatever_could_widen_it_is_drift(at: list[Any], value: Any) -> None:
    found = live()
    put(found, at, value)
    assert drifted(WANTED, found, None)
    assert drifted(WANTED, found, live())


def test_what_the_server_filled_in_is_no_drift() -> None:
    found = live()
    found["spec"]["description"] = ""
    assert drifted(WANTED, found, None)
    assert not drifted(WANTED, found, copy.deepcopy(found))


def test_what_others_wrote_beside_us_is_taken_away() -> None:
    found = live()
    put(found, *OPEN_BESIDE)
    put(found, *ANOTHER_SPEC)
    assert foreign_fields(WANTED, found) == {"spec": {"ingress": None}, "specs": None}
    assert foreign_fields(WANTED, live()) == {}


def test_what_others_wrote_into_a_part_of_ours_is_taken_away_too() -> None:
    wanted = {"metadata": {}, "spec": {"endpointSelector": {}, "hard": {"pods": "1"}}}
    answered = {
        "metadata": {},
        "spec": {
            "endpointSelector": {"matchLabels": {"a": "b"}},
            "hard": {"pods": "1", "count/pods": "9"},
        },
    }
    assert foreign_fields(wanted, answered) == {
        "spec": {"endpointSelector": {"matchLabels": None}, "hard": {"count/pods": None}}
    }


def test_an_account_may_have_more_than_we_say() -> None:
    wanted = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    found = wanted | {"imagePullSecrets": [{"name": "x"}]}
    assert not drifted(wanted, found, None)
    assert foreign_fields(wanted, found) == {}
    assert drifted(wanted, found | {"automountServiceAccountToken": True}, None)
