"""What differs between what is there and what is declared, before it is taken over."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gpuclusters.core import adoption
from gpuclusters.core.finding import Refused
from gpuclusters.driver import decide
from gpuclusters.gpu_operator.mig_node import MIG_LABEL, MigInputs, MigNode
from gpuclusters.rke2 import adopt
from gpuclusters.rke2.model import LiveHost, Rke2NodeInputs
from gpuclusters.rke2.releases import Role
from gpuclusters.tenancy import cluster as reconcile_tenancy
from tests.fixtures.tables import beside
from tests.fixtures.waiting import Waiting
from tests.unit import test_rke2 as rke2_hosts
from tests.unit.machines import test_gpu_driver_rules as drivers
from tests.unit.tenants import test_tenancy_proof as tenancies

TOKEN = "a-token-of-sixteen"
VERSION = "v1.35.7+rke2r1"
REGISTRIES = "/etc/rancher/rke2/registries.yaml"
CASES = beside(__file__, "rke2_adoption.yaml")
AGENT = CASES["agent"]


def test_a_refusal_tells_all_and_what_to_do() -> None:
    adoption.require_no_diff("CdiSpec a:/b", [])
    with pytest.raises(Refused) as refused:
        adoption.require_no_diff("CdiSpec a:/b", ["one", "two"])
    assert str(refused.value) == (
        "adopt CdiSpec a:/b: what is there differs from what is declared: one; two; declare it as it is, or "
        "bring it to what is declared, and run again; nothing was changed [adopt.differs]"
    )


def node(**changes: Any) -> Rke2NodeInputs:
    config = {"server": "https://10.20.0.100:9345", "node-name": "hgx-01"}
    return rke2_hosts.node(config=config, adopt=True, **changes)


def rke2(
    inputs: Rke2NodeInputs, live: LiveHost, *documents: Mapping[str, Any], token: str = ""
) -> list[str]:
    paths = (adopt.CONFIG_FILE, f"{adopt.CONFIG_FOLDER}/10-more.yaml")
    files = {p: yaml.safe_dump(dict(d)).encode() for p, d in zip(paths, documents, strict=False)}
    return [one.problem for one in adopt.differences(inputs, live, files, token)]


def running(role: Role = Role.AGENT, **more: Any) -> LiveHost:
    return LiveHost(**{"version": VERSION, "method": "tar", "active": {role: "active"}, **more})


def test_an_agent_that_is_as_declared_has_no_difference() -> None:
    assert rke2(node(), running(), AGENT) == []
    assert rke2(node(), LiveHost()) == [], "nothing is there"
    # Defaults that are written down, and what a fragment says last.
    spelled = {**AGENT, "selinux": False, "server": "https://old:9345"}
    assert rke2(node(), running(), spelled, {"server": AGENT["server"]}) == []
    # An interrupted run goes on: what is half ours is not compared any more.
    assert rke2(node(), running(owner="c/hgx-01", version="v1.34.1+rke2r1")) == []


@pytest.mark.parametrize("case", CASES["differences"], ids=lambda case: case["says"][0])
def test_every_difference_of_an_rke2_is_named(case: dict[str, Any]) -> None:
    files = {REGISTRIES: "x\n"} if REGISTRIES in case["says"][0] else {}
    config = {**AGENT, **case.get("config", {})}
    assert rke2(node(files=files), running(**case.get("live", {})), config) == case["says"]


def test_tokens_are_compared_and_never_told() -> None:
    for stated in ("another-secret-token", f"K10{'0' * 64}::node:another-secret-token"):
        (told,) = rke2(node(), running(), {**AGENT, "token": stated})
        assert told.startswith("it has another token; set the secret gpu-clusters:agent-token")
        assert "another-secret" not in told
    assert rke2(node(), running(), {**AGENT, "token": f"K10{'0' * 64}::server:{TOKEN}"}) == []
    (told,) = rke2(node(), running(), {k: v for k, v in AGENT.items() if k != "token"})
    assert "its token is in another file" in told

    server = node(role="server", agent_token="an-agents-own-token")
    live = running(Role.SERVER)
    kept = f"K10{'0' * 64}::server:{TOKEN}\n"
    without = {k: v for k, v in AGENT.items() if k != "token"}
    (told,) = rke2(server, live, without, token=kept)
    assert told.startswith("agents join it with another token")
    assert rke2(server, live, {**without, "agent-token": "an-agents-own-token"}, token=kept) == []


def test_a_configuration_that_cannot_be_read_is_named_without_its_content() -> None:
    files = {adopt.CONFIG_FILE: b"token: [hunter2"}
    (told,) = adopt.differences(node(), running(), files, "")
    assert told.problem == "/etc/rancher/rke2/config.yaml is not YAML"


def test_a_list_that_a_fragment_adds_to_is_one_list() -> None:
    documents = {
        adopt.CONFIG_FILE: b"tls-san: a\n",
        f"{adopt.CONFIG_FOLDER}/20.yaml": b"tls-san+: [c]\n",
        f"{adopt.CONFIG_FOLDER}/10.yaml": b"tls-san+: [b]\ncni: cilium\n",
    }
    assert adopt.configuration(documents) == {"tls-san": ["a", "b", "c"], "cni": "cilium"}


def driver(live: Any, **changes: Any) -> list[str]:
    return [one.problem for one in decide.differences(drivers.inputs(**changes), live)]


def test_a_driver_is_taken_over_only_if_it_is_this_one() -> None:
    wanted = drivers.inputs()
    nobodys = {"held": frozenset(), "file": {}, "initramfs": "", "applied": ""}
    by_hand = drivers.served(wanted, **nobodys)
    assert driver(by_hand) == []
    assert driver(drivers.live()) == [], "there is none"
    utils = {n: v for n, v in by_hand.package.items() if "utils" not in n}
    assert driver(by_hand.model_copy(update={"package": utils})) == [], "it is added"
    begun = drivers.served(wanted, nvrm="", package={}, applied="")
    assert driver(begun) == [], "a run of ours was interrupted"
    other = driver(by_hand, version="580.126.16")
    assert any(
        words.startswith("the package nvidia-utils-580-server is 580.178.04") for words in other
    )
    assert "the kernel runs driver 580.178.04 and not 580.126.16" in other
    assert any("proprietary" in words for words in driver(by_hand, modules="proprietary"))
    assert "the PCI bus shows 1 GPUs and 2 are declared" in driver(by_hand, gpus=2)


def holding(body: dict[str, Any] | None) -> Any:
    """A cluster with one object."""
    return SimpleNamespace(get=lambda *_, **__: body)


def test_a_tenancy_is_compared_leaf_by_leaf() -> None:
    spec = tenancies.spec()
    assert reconcile_tenancy.differences(spec, holding(None)) == ()
    same = {"spec": spec.document()}
    assert reconcile_tenancy.differences(spec, holding(same)) == ()
    other = {"spec": {**spec.document(), "gpus": spec.gpus + 1}}
    (told,) = reconcile_tenancy.differences(spec, holding(other))
    assert told == f"spec.gpus is {spec.gpus + 1} instead of {spec.gpus}"


def test_a_board_that_is_not_cut_has_nothing_to_take_over() -> None:
    assert list(adoption.partitions((), (1, 2))) == []
    assert list(adoption.partitions((2, 1), (1, 2))) == []
    assert list(adoption.partitions((3, 1), ())) == ["partitions 1, 3 are active instead of none"]


def test_a_layout_of_mig_counts_when_it_is_asked_for() -> None:
    inputs = MigInputs(
        cluster="c", kubeconfig="k", node="n", layout="all-1g.10gb", expected={"nvidia.com/gpu": 7}
    )
    other = ("its GPUs are divided as all-3g.40gb instead of all-1g.10gb",)
    for asked, told in (("", ()), ("all-1g.10gb", ()), ("all-3g.40gb", other)):
        there = holding({"metadata": {"labels": {MIG_LABEL: asked}}})
        node = MigNode(inputs, there, Waiting(), Waiting())
        assert tuple(f.problem for f in node.differences(node.observe())) == told
        assert not node.differences(None)
