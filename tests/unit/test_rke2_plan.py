"""From the section of an rke2 cluster to what its components are given."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

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
from gpuclusters.gpu_operator.keys import at
from gpuclusters.gpu_operator.objects import with_configs
from gpuclusters.proof.checks import Level
from gpuclusters.rke2 import host_config, releases
from gpuclusters.rke2.host_config import Cni
from gpuclusters.rke2.releases import Role
from tests.unit.config.documents import base, patched

OPERATOR = yaml.safe_load(Path(__file__).with_name("rke2_operator.yaml").read_text())
SHARING = yaml.safe_load(Path(__file__).with_name("rke2_sharing.yaml").read_text())
DRIVERS = yaml.safe_load(Path(__file__).with_name("rke2_drivers.yaml").read_text())
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
    assert plan.proof_arguments(made, Level.L0)["driver"] == case["proof"]


def test_containers_have_one_driver_and_hosts_none() -> None:
    made = config(driver={"source": "operator"}, operating_system="ubuntu-24.04")
    assert all(one.driver is None for one in machines(made))
    assert container_driver(made) is not None
    assert "nvcr.io/nvidia/driver:580.173.02-ubuntu24.04" in plan.images(made)
    assert [system(made, one) for one in made.pools] == ["ubuntu-24.04"] * 2


@pytest.mark.parametrize(
    ("cni", "named", "proxy"),
    [
        ({"kind": "canal"}, "canal", False),
        ({"kind": "calico", "mtu": 1400}, "calico", False),
        ({"kind": "cilium"}, "cilium", True),
        ({"kind": "cilium", "kube-proxy-replacement": False}, "cilium", False),
    ],
)
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
    tolerated = plan.proof_arguments(made, Level.L0)["tolerations"]
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
