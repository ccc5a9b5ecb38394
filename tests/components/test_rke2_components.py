"""The RKE2 cluster and its metrics as components."""

from typing import Any

from components.helm import Chart
from components.host_connection import HostConnection
from components.rke2.cluster import Rke2Cluster, Rke2Host
from components.rke2.metrics import Metrics
from gpuclusters.metrics.monitoring_stack import Monitoring
from gpuclusters.rke2.host_config import Settings
from tests.components.recorder import Recorder, record

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


def host(name: str) -> Rke2Host:
    connection = HostConnection(host=name, address=name, port=22, user="ops", host_key=KEY)
    return Rke2Host(connection=connection)


def cluster(**changes: Any) -> Recorder:
    def declare() -> None:
        args: dict[str, Any] = {
            "version": "v1.35.7+rke2r1",
            "artifacts": {"source": "download", "location": "https://x", "checksum": "a" * 64},
            "settings": Settings(registration_address="10.0.0.100"),
            "servers": [host("cp-1"), host("cp-2"), host("cp-3")],
            "agents": [host("a-1"), host("a-2"), host("a-3")],
            "agents_at_once": 2,
            **changes,
        }
        Rke2Cluster("c", **args)

    return record(declare)


def test_tokens_of_ones_own_are_used_and_none_are_made() -> None:
    recorder = cluster(
        server_token="server-token-of-ones-own", agent_token="agent-token-of-ones-own"
    )
    assert not recorder.of(":Rke2Tokens")
    nodes = recorder.of(":Rke2Node")
    assert nodes["cp-2-rke2"]["token"] == "server-token-of-ones-own"
    assert nodes["cp-2-rke2"]["agent_token"] == "agent-token-of-ones-own"
    assert nodes["a-1-rke2"]["token"] == "agent-token-of-ones-own"
    assert "agent_token" not in nodes["a-1-rke2"]


CHART = Chart(reference="kube-prometheus-stack", version="92.11.0", repository="https://charts.x")
RANCHER = {
    "kind": Monitoring.RANCHER,
    "chart": Chart(reference="rancher-monitoring", version="1.0.0", repository="https://r.x"),
    "crd_chart": Chart(
        reference="rancher-monitoring-crd", version="1.0.0", repository="https://r.x"
    ),
}
ORIGIN = {"kind": Monitoring.KUBE_PROMETHEUS_STACK, "chart": CHART}


def metrics(**changes: Any) -> Recorder:
    args: dict[str, Any] = {**ORIGIN, "expected": {"n0": {"nvidia.com/gpu": 8}}, **changes}
    return record(lambda: Metrics("metrics", **args))


def test_rancher_has_its_kinds_in_a_release_of_their_own_and_its_own_place_for_dashboards() -> None:
    recorder = metrics(**RANCHER)
    releases = {r["name"]: r for r in recorder.of("helm.sh/v3:Release").values()}
    assert set(releases) == {"rancher-monitoring-crd", "rancher-monitoring"}
    assert {r["namespace"] for r in releases.values()} == {"cattle-monitoring-system"}
    assert releases["rancher-monitoring"]["values"]["rke2Etcd"] == {"enabled": True}
    assert {m["metadata"]["namespace"] for m in recorder.of("v1:ConfigMap").values()} == {
        "cattle-dashboards"
    }
