"""What tenants and the cluster's own programs can reach by their policies, word for word (isolation.yaml).

On real nodes with Cilium tests/lab/nodes/test_real_policies.py tries the same."""

from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from gpuclusters.tenancy.isolation import Network, baseline, network_policy
from gpuclusters.tenancy.model import Egress, TenancySpec
from gpuclusters.tenancy.objects import home, inside
from gpuclusters.tenancy.programs import Place, Ports, Program, Reach, network_policies
from tests.fixtures.tables import beside

CASES = beside(__file__, "isolation.yaml")
NETWORK = Network(infrastructure_cidrs=("192.0.2.0/24",))
TENANCY = TenancySpec.model_validate(CASES["tenancy"])
PROGRAMS = CASES["programs"]
PORTS = {Program(name): Ports(**ports) for name, ports in PROGRAMS["ports"].items()}


@pytest.mark.parametrize("case", CASES["tenants"].values(), ids=CASES["tenants"])
def test_what_a_tenants_own_rules_let_through(case: dict[str, Any]) -> None:
    found = network_policy(Egress.model_validate(case["egress"]), NETWORK, "tenant-acme")
    rules = {one.pop("description"): one for one in map(dict, found)}
    assert list(rules) == case["rules"]
    for name, told in case["told"].items():
        assert to_jsonable_python(rules[name]) == {"endpointSelector": {}, **told}


def test_the_policy_of_all_tenants_closes_both_directions_and_what_no_tenant_ever_reaches() -> None:
    assert to_jsonable_python(baseline(NETWORK)) == CASES["baseline"]


def test_everything_of_a_tenant_is_in_its_namespace_and_says_whose_it_is() -> None:
    assert home(TENANCY).body == CASES["home"]
    assert to_jsonable_python([one.body for one in inside(TENANCY, NETWORK)]) == CASES["inside"]


def test_a_tenant_that_is_to_go_may_start_no_pod() -> None:
    (quota, *_) = inside(TENANCY, NETWORK, closing=True)
    assert quota.body["spec"]["hard"] == {"requests.nvidia.com/pgpu": "4", "pods": "0"}


@pytest.mark.parametrize("monitored", [False, True])
def test_programs_reach_what_they_have_to_and_metrics_are_open_where_somebody_collects_them(
    monitored: bool,
) -> None:
    stated = PROGRAMS["reach"]
    reach = Reach(
        machines=[Place(*one) for one in stated["machines"]],
        management_controllers=[Place.of(url) for url in stated["management_controllers"]],
        issuer=[Place.of(url) for url in stated["issuer"]],
    )
    for program, spec in network_policies(reach, PORTS, monitored=monitored).items():
        more = [PROGRAMS["monitored"][program]] if monitored else []
        assert to_jsonable_python(spec) == {
            "endpointSelector": {},
            "ingress": [*PROGRAMS["ingress"][program], *more],
            "egress": PROGRAMS["egress"][program],
        }
    for spec in network_policies(Reach(), PORTS, monitored=monitored).values():
        assert spec["egress"] == [{"toEntities": ["kube-apiserver"]}]
