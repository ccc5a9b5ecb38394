"""RKE2 without a host: from the section to what components are given; what keeps a host out."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gpuclusters.config import rke2_plan as plan
from gpuclusters.config.stack import ClusterType
from gpuclusters.core.finding import Level
from gpuclusters.host.node import ClusterNode, readdressed
from gpuclusters.rke2 import decide, host_config
from gpuclusters.rke2.host_config import Cilium
from gpuclusters.rke2.model import (
    LiveCluster,
    LiveHost,
    LiveNode,
    Rke2NodeInputs,
    join_order,
)
from gpuclusters.rke2.releases import Role, parse_version
from tests.fixtures.tables import beside
from tests.unit.config.documents import accepted, base, patched

REFUSALS = beside(__file__, "rke2_refusals.yaml")
CASES = beside(__file__, "rke2_hosts.yaml")
SETTINGS = host_config.Settings(registration_address="10.20.0.100")


@pytest.mark.parametrize(
    "text", ["stable", "v1.35", "1.35.7+rke2r1", "v1.35.7", "v1.35.7+k3s1", ""]
)
def test_only_a_whole_release_is_a_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"v1\.35\.7\+rke2r1"):
        parse_version(text)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([1, 3, 5]), st.integers(0, 60), st.integers(1, 50))
def test_hosts_join_servers_first_and_never_more_at_once_than_allowed(
    servers: int, agents: int, at_once: int
) -> None:
    names = [f"s{n}" for n in range(servers)], [f"a{n}" for n in range(agents)]
    order = join_order(*names, at_once)
    assert [join.first for join in order] == [True] + [False] * (servers + agents - 1)
    place = {join.host: n for n, join in enumerate(order)}
    assert all(join.after is None or place[join.after] < place[join.host] for join in order)
    # Each server waits for the one before; each agent for the last server, directly or not.
    assert [join.after for join in order[:servers]] == [None, *names[0][:-1]]
    waiting = [join for join in order if join.role is Role.AGENT and join.after == names[0][-1]]
    assert len(waiting) == min(at_once, agents)
    depth: dict[str, int] = {}
    for join in order:
        depth[join.host] = 1 + (depth[join.after] if join.after is not None else 0)
    assert max(depth.values()) == servers + -(-agents // at_once)


def test_one_more_agent_makes_no_other_wait_for_another() -> None:
    before = join_order(["s"], [f"a{n}" for n in range(7)], 3)
    after = join_order(["s"], [f"a{n}" for n in range(8)], 3)
    assert after[:-1] == before


def test_cilium_leaves_sockets_of_virtual_machines_alone() -> None:
    assert host_config.cilium_values(Cilium())["socketLB"] == {"hostNamespaceOnly": True}


def test_no_token_is_in_what_may_be_shown() -> None:
    inputs = node()
    shown = repr(inputs.contents()) + repr(host_config.files(SETTINGS, Role.SERVER))
    assert inputs.token not in shown
    assert inputs.token in inputs.tokens()


def test_the_kubeconfig_leads_to_the_servers_address() -> None:
    text = yaml.safe_dump(CASES["kubeconfig"])
    made = yaml.safe_load(readdressed(text, name="c", host="api.example.com"))
    assert made["clusters"] == [
        {"name": "c", "cluster": {"server": "https://api.example.com:6443"}}
    ]
    assert made["contexts"] == [{"name": "c", "context": {"cluster": "c", "user": "c"}}]
    assert "https://[fd00::1]:6443" in readdressed(text, name="c", host="fd00::1")
    with pytest.raises(ValueError, match="not a kubeconfig"):
        readdressed("{}", name="c", host="api.example.com")


def node(**changes: Any) -> Rke2NodeInputs:
    return Rke2NodeInputs.model_validate({**CASES["inputs"], **changes})


@pytest.mark.parametrize(("changes", "said"), CASES["refused"])
def test_inputs_that_cannot_be_right(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        node(**changes)


READY = ClusterNode(ready=True, version="v1.35.7+rke2r1", labels={})


def blocks(
    inputs: Rke2NodeInputs, live: LiveHost, cluster: LiveCluster | None = None
) -> dict[str, str]:
    """What keeps a host out, by code."""
    found = decide.findings(inputs, {}, LiveNode(live, cluster or LiveCluster()))
    return {one.code: str(one) for one in found if one.level is Level.BLOCK}


@pytest.mark.parametrize("case", REFUSALS, ids=[",".join(one["said"]) for one in REFUSALS])
def test_what_keeps_a_host_out_is_named(case: dict[str, Any]) -> None:
    cluster = TypeAdapter(LiveCluster).validate_python(case.get("cluster", {}))
    found = blocks(node(**case.get("inputs", {})), LiveHost(**case.get("live", {})), cluster)
    assert found.keys() == {f"rke2.{code}" for code in case["said"]}
    for code, words in case["said"].items():
        assert words in found[f"rke2.{code}"]


def test_a_host_that_is_right_is_not_refused() -> None:
    assert not blocks(node(), LiveHost(architecture="x86_64"))
    # What RKE2 itself brings is no obstacle to going on with it.
    ours = LiveHost(owner="c/hgx-01", ports=frozenset({10250}), free_mib=900)
    assert not blocks(node(), ours)
    taken_over = LiveHost(version="v1.35.7+rke2r1", method="tar", ports=frozenset({10250}))
    assert not blocks(node(adopt=True), taken_over)
    # One of ours that was interrupted while its node was already there.
    assert not blocks(node(), LiveHost(owner="c/hgx-01"), LiveCluster(node=READY))


def test_registries_have_the_passwords_of_the_secret_and_no_others() -> None:
    mirrors = {"nvcr.io": {"endpoints": ["https://m.example.com"]}}
    made = accepted(
        patched(
            base(ClusterType.RKE2),
            {"rke2": {"mirrors": mirrors, "registry-auth": ["m.example.com"]}},
        )
    ).section
    secret = {"m.example.com": {"username": "u", "password": "p"}}
    assert plan.registries(made, secret)["configs"] == {
        "m.example.com": {"auth": {"username": "u", "password": "p"}}
    }
    with pytest.raises(ValueError, match=r"missing m\.example\.com; not asked for: other$"):
        plan.registries(made, {"other": secret["m.example.com"]})
