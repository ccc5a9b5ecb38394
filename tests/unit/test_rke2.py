"""RKE2 without a host: from the section to what components are given; what keeps a host out."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gpuclusters.config import rke2_plan as plan
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_machines import (
    POOL_LABEL,
    container_driver,
    expected,
    machines,
    mig_nodes,
    mig_strategy,
    plugin_keys,
    system,
)
from gpuclusters.config.stack import ClusterType, StackConfig, parse
from gpuclusters.core.finding import Level
from gpuclusters.gpu_operator.keys import at
from gpuclusters.gpu_operator.objects import with_configs
from gpuclusters.host.node import ClusterNode, readdressed
from gpuclusters.proof.checks import Level as ProofLevel
from gpuclusters.rke2 import decide, host_config, releases
from gpuclusters.rke2.host_config import Cilium, Cni, Encryption
from gpuclusters.rke2.model import (
    LiveCluster,
    LiveHost,
    LiveNode,
    Rke2NodeInputs,
    join_order,
)
from gpuclusters.rke2.releases import Role, parse_version
from tests.fixtures.tables import beside
from tests.unit.config.documents import base, patched

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


def test_what_a_server_is_told() -> None:
    first = host_config.config(SETTINGS, Role.SERVER, first=True, node_name="cp-1")
    second = host_config.config(SETTINGS, Role.SERVER, first=False, node_name="cp-2")
    assert first == CASES["server"]
    assert second == {**first, "node-name": "cp-2", "server": "https://10.20.0.100:9345"}
    allowed = replace(SETTINGS, deny_external_ips=False)
    told = host_config.config(allowed, Role.SERVER, first=True, node_name="cp-1")
    assert told["kube-apiserver-arg"] == ["enable-admission-plugins=NodeRestriction"]


def test_an_agent_is_told_nothing_of_the_control_plane() -> None:
    told = host_config.config(
        replace(SETTINGS, cis=True, selinux=True),
        Role.AGENT,
        first=False,
        node_name="hgx-01",
        labels={"b": "2", "a": "1"},
    )
    assert told == CASES["agent"]
    assert host_config.CILIUM_FILE not in host_config.files(SETTINGS, Role.AGENT)


def test_cilium_leaves_sockets_of_virtual_machines_alone_and_opens_nothing() -> None:
    body = yaml.safe_load(
        host_config.chart_config(
            "rke2-cilium",
            host_config.cilium_values(Cilium(encryption=Encryption.WIREGUARD, mtu=9000)),
        )
    )
    assert (body["kind"], body["metadata"]["name"]) == ("HelmChartConfig", "rke2-cilium")
    values = yaml.safe_load(body["spec"]["valuesContent"])
    assert values["kubeProxyReplacement"] is True
    assert values["socketLB"] == {"hostNamespaceOnly": True}
    assert (values["k8sServiceHost"], values["k8sServicePort"]) == ("localhost", "6443")
    assert values["hubble"]["enabled"] is False
    # Cilium 1.19, upgrade guide: the option is removed; the chart takes it and does nothing.
    assert "externalIPs" not in values
    assert values["operator"] == {"setNodeNetworkStatus": True}
    # The chart has no switch of the DNS proxy alone, and takes any key that it does not know.
    assert values["l7Proxy"] is True
    assert host_config.cilium_values(Cilium(dns_proxy=False))["l7Proxy"] is False
    assert values["encryption"] == {"enabled": True, "type": "wireguard"}
    assert values["MTU"] == 9000
    assert "k8sServiceHost" not in host_config.cilium_values(Cilium(kube_proxy_replacement=False))


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


OPERATOR = beside(__file__, "rke2_operator.yaml")
SHARING = beside(__file__, "rke2_sharing.yaml")
DRIVERS = beside(__file__, "rke2_drivers.yaml")
BASE = base(ClusterType.RKE2)


def config(**changes: Any) -> Rke2Config:
    """The smallest cluster with other sections; keys with `_` for `-`. Right, or the test fails."""
    patch = {"rke2": {key.replace("_", "-"): value for key, value in changes.items()}}
    parsed = parse(patched(copy.deepcopy(BASE), patch))
    assert isinstance(parsed, StackConfig), "\n".join(map(str, parsed))
    return parsed.section


def test_machines_are_servers_and_the_pools_others() -> None:
    found = {one.name: one for one in machines(config())}
    assert list(found) == ["s1", "s2", "s3", "g1", "g2"]
    assert [one.role for one in found.values()] == [Role.SERVER] * 3 + [Role.AGENT] * 2
    assert found["g1"].labels == {POOL_LABEL: "train"}
    assert found["g1"].gpus == 8
    assert found["s1"].driver is None
    assert [one.name for one in machines(config()) if one.role is Role.AGENT] == ["g1", "g2"]


@pytest.mark.parametrize("case", DRIVERS.values(), ids=DRIVERS)
def test_each_pool_has_a_driver_that_knows_its_gpus(case: dict[str, Any]) -> None:
    made = config(**case["section"])
    drivers = [one.driver for one in machines(made) if one.driver is not None]
    assert [one.version for one in drivers] == case["versions"]
    assert [one.modules for one in drivers] == case["modules"]
    assert [one.nvswitch for one in drivers] == case["nvswitch"]
    assert plan.proof_arguments(made, ProofLevel.L0)["driver"] == case["proof"]


def test_containers_have_one_driver_and_hosts_none() -> None:
    made = config(driver={"source": "operator"}, operating_system="ubuntu-24.04")
    assert all(one.driver is None for one in machines(made))
    assert container_driver(made) is not None
    assert "nvcr.io/nvidia/driver:580.173.02-ubuntu24.04" in plan.images(made)
    assert [system(made, one) for one in made.pools] == ["ubuntu-24.04"] * 2


@pytest.mark.parametrize(("cni", "named", "proxy"), CASES["networks"])
def test_servers_are_told_the_cni_and_kube_proxy_stays_unless_cilium_replaces_it(
    cni: dict[str, Any], named: str, proxy: bool
) -> None:
    found = plan.settings(config(cni=cni), registration_address="10.9.0.100")
    told = host_config.config(found, Role.SERVER, first=True, node_name="s1")
    assert (told["cni"], told["disable-kube-proxy"]) == (named, proxy)
    assert told["cluster-cidr"] == "10.42.0.0/16"
    files = host_config.files(found, Role.SERVER)
    manifests = [path for path in files if path.startswith(releases.MANIFESTS)]
    if cni == {"kind": "canal"}:
        assert manifests == []
    else:
        assert manifests == [f"{releases.MANIFESTS}/rke2-{named}-config.yaml"]
        values = yaml.safe_load(yaml.safe_load(files[manifests[0]])["spec"]["valuesContent"])
        assert values
    assert host_config.files(found, Role.AGENT).keys().isdisjoint(manifests)


def test_canal_encrypts_if_told() -> None:
    found = plan.settings(
        config(cni={"kind": "canal", "wireguard": True, "mtu": 1400}), registration_address="a"
    )
    assert found.cni is Cni.CANAL
    assert found.cni_values == {"flannel": {"backend": "wireguard"}, "calico": {"vethuMTU": 1400}}


@pytest.mark.parametrize("case", SHARING.values(), ids=SHARING)
def test_gpus_that_are_cut_or_shared_are_counted_configured_and_proven(
    case: dict[str, Any],
) -> None:
    made = config(**case["section"])
    configs = plan.operator_configs(made)
    assert expected(made) == case["shows"]
    assert mig_strategy(made).value == case.get("strategy", "single")
    assert {name: one.layout for name, one in mig_nodes(made).items()} == case.get("layouts", {})
    assert plugin_keys(made) == case.get("keys", {})
    assert {
        name: {file: yaml.safe_load(text) for file, text in one.items()}
        for name, one in configs.items()
    } == case.get("configs", {})
    named = with_configs(plan.operator_values(made), configs)
    assert at(named, "devicePlugin.config.default") == case.get("default")
    proven = {
        one.name: [kind for kind in ("mig", "shared") if getattr(one, kind)]
        for one in plan.proof_nodes(made)
    }
    assert proven == case["proof"]


@pytest.mark.parametrize("case", OPERATOR.values(), ids=OPERATOR)
def test_what_the_operators_chart_is_told(case: dict[str, Any]) -> None:
    made = config(**case["section"])
    found = plan.operator_values(made)
    for key, told in case.get("told", {}).items():
        assert at(found, key) == told
    for key, one in case.get("among", {}).items():
        assert one in at(found, key)
    tolerated = plan.proof_arguments(made, ProofLevel.L0)["tolerations"]
    assert tolerated == case.get("proof", tolerated)


def test_metrics_scrape_the_exporter_and_keep_what_they_are_told() -> None:
    made = config(
        metrics={
            "kind": "kube-prometheus-stack",
            "version": "92.11.0",
            "scrape-interval-seconds": 30,
            "volume": {"storage-class": "local", "size-gib": 20},
            "values": {"grafana": {"enabled": False}},
        }
    )
    monitor = plan.operator_values(made)["dcgmExporter"]["serviceMonitor"]
    assert monitor["interval"] == "30s"
    assert monitor["additionalLabels"] == {"release": "kube-prometheus-stack"}
    chart = plan.monitoring_values(made)
    spec = chart["prometheus"]["prometheusSpec"]
    assert spec["retention"] == "15d"
    claim = spec["storageSpec"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"] == {"requests": {"storage": "20Gi"}}
    assert chart["grafana"] == {"enabled": False}
    assert "dcgm-metrics.csv" in plan.operator_configs(made)["dcgm-metrics"]


def test_registries_have_the_passwords_of_the_secret_and_no_others() -> None:
    made = config(
        mirrors={"nvcr.io": {"endpoints": ["https://m.example.com"]}},
        registry_auth=["m.example.com"],
    )
    secret = {"m.example.com": {"username": "u", "password": "p"}}
    assert plan.registries(made, secret)["configs"] == {
        "m.example.com": {"auth": {"username": "u", "password": "p"}}
    }
    with pytest.raises(ValueError, match=r"missing m\.example\.com; not asked for: other$"):
        plan.registries(made, {"other": secret["m.example.com"]})
