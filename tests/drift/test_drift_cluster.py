"""Nodes, leases, tenancies, releases, machines: the facts of a cluster against what is expected of it."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuclusters.core import finding as core
from gpuclusters.core.errors import HostKeyMismatchError, InvalidAnswerError, UnreachableError
from gpuclusters.drift import cluster, hosts, nodes
from gpuclusters.drift.cluster import ClusterLook
from gpuclusters.drift.hosts import HostFacts
from gpuclusters.drift.nodes import Expected, ExpectedNode
from gpuclusters.drift.report import Finding
from gpuclusters.tenancy.model import TenancySpec, tenancy_object
from gpuclusters.tenancy.proof import Proof
from tests.fixtures.tables import beside

CASES = beside(__file__, "cluster.yaml")
GPU = "nvidia.com/gpu"
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
WANTED = ExpectedNode("n1", {"pool": "a"}, frozenset({"gpu=true:NoSchedule"}), {GPU: 8})


NODE: dict[str, Any] = CASES["node"]
OTHER = {**NODE, "metadata": {"name": "n2", "labels": {"pool": "a"}}}


def ids(found: Any) -> list[tuple[str, str]]:
    return [(one.id, one.where) for one in found]


def look(live: list[dict[str, Any]], **more: Any) -> list[Finding]:
    return list(nodes.findings(Expected((WANTED,), **more), live, {}))


def with_gpus(number: int) -> dict[str, Any]:
    return {**NODE, "status": {**NODE["status"], "allocatable": {GPU: str(number)}}}


def test_a_node_as_it_should_be_tells_nothing_and_the_systems_own_taints_are_its_own() -> None:
    assert look([NODE]) == []


def test_what_is_wrong_with_a_node_has_its_name() -> None:
    assert ids(look([])) == [("node.missing", "n1")]
    for id_, change in CASES["wrong"].items():
        assert ids(look([NODE | change])) == [(id_, "n1")]


def test_a_taint_of_somebody_and_nodes_that_are_not_declared() -> None:
    taints = [*NODE["spec"]["taints"], {"key": "mine", "effect": "NoExecute"}]
    (found,) = look([{**NODE, "spec": {"taints": taints}}])
    assert found.id == "node.taint-unknown"
    assert found.remedy == "`kubectl taint node n1 mine:NoExecute-`"
    assert ids(look([NODE, OTHER])) == [("node.unknown", "n2")]
    assert look([NODE, OTHER], others=frozenset({"n2"})) == []
    assert look([NODE, OTHER], marks={"ours": "true"}) == []
    away = Expected((ExpectedNode("n1", serves=False),))
    bare = {**NODE, "spec": {"taints": [], "unschedulable": True}}
    assert list(nodes.findings(away, [bare], {})) == []


def test_leases_that_are_missing_unknown_stuck_or_in_quarantine() -> None:
    found = list(nodes.of_leases({"n1": 5}, CASES["leases"], NOW))
    assert [(f.id, f.what) for f in found] == [
        ("gpu.lease-missing", "n1-gpu5"),
        ("gpu.lease-quarantined", "n1-gpu2"),
        ("gpu.lease-stuck", "n1-gpu3"),
        ("gpu.lease-unknown", "n1-gpu9"),
    ]
    assert "acme" in found[1].found
    assert nodes.withheld(CASES["leases"]) == {"n1": 3}


def test_gpus_that_their_leases_keep_back_are_not_missing_twice() -> None:
    wanted = Expected((WANTED,), leases={"n1": 8})
    assert list(nodes.findings(wanted, [with_gpus(6)], withheld={"n1": 2})) == []
    lower = nodes.findings(wanted, [with_gpus(5)], withheld={"n1": 2})
    assert ids(lower) == [("node.allocatable-lower", "n1")]


SPEC = TenancySpec.model_validate(CASES["tenancy"])


def test_a_tenancy_says_which_part_of_the_isolation_does_not_hold() -> None:
    good = tenancy_object(SPEC)
    proofs = [
        Proof("namespace"),
        Proof("quota", core.Finding("tenancy.differs", "it says 8")),
        Proof("network-policy", core.Finding("tenancy.missing", "it does not exist")),
        Proof("pod-security", core.Finding("tenancy.not-tried", "later")),
    ]
    found = list(cluster.tenancy_findings(SPEC, good, proofs, {}))
    assert [(f.id, f.found) for f in found] == [
        ("tenant.quota-changed", "it says 8"),
        ("tenant.network-policy-missing", "it does not exist"),
    ]
    assert ids(cluster.tenancy_findings(SPEC, None, (), {})) == [("tenant.tenancy-missing", "acme")]
    other: dict[str, Any] = {**good, "spec": {**good["spec"], "gpus": 8}}
    changed = cluster.tenancy_findings(SPEC, other, (), {})
    assert ids(changed) == [("tenant.tenancy-changed", "acme")]
    unknown = cluster.unknown_tenancies(frozenset({"acme"}), [good, {"metadata": {"name": "spy"}}])
    assert ids(unknown) == [("tenant.tenancy-unknown", "spy")]


class Cluster(ClusterLook):
    """A cluster of configmaps, and the Secrets in which Helm keeps a release."""

    def __init__(self, secrets: list[dict[str, Any]], maps: list[dict[str, Any]]) -> None:
        self._kinds = {}
        self._secrets, self._maps = secrets, maps

    @property
    def target(self) -> str:
        return "API server here"

    def _call(
        self, method: str, path: str, tried: str, *_: Any, **more: Any
    ) -> tuple[int, dict[str, Any]]:
        assert method == "GET", "a look changes nothing"
        answers = {
            "/api/v1": {"resources": CASES["kinds"]},
            "/api/v1/namespaces/ns/secrets": {"items": self._secrets},
            "/api/v1/namespaces/ns/configmaps": {"items": self._maps},
        }
        if path.endswith("/secrets"):
            assert more["query"] == [("labelSelector", "owner=helm,name=x")]
        return (200, answers[path]) if path in answers else (404, {})


def kept(
    revision: int,
    status: str,
    manifest: str = CASES["manifest"],
    *,
    packed: bool = True,
    release: str | None = None,
) -> dict[str, Any]:
    """The Secret of a revision; `release` is what stands in it otherwise."""
    data = json.dumps({"version": revision, "manifest": manifest}).encode()
    body = base64.b64encode(gzip.compress(data) if packed else data)
    labels = {"owner": "helm", "name": "x", "version": str(revision), "status": status}
    return {
        "metadata": {"name": f"sh.helm.release.v1.x.v{revision}", "labels": labels},
        "data": {"release": release or base64.b64encode(body).decode()},
    }


def config_map(name: str, data: Mapping[str, str], **notes: str) -> dict[str, Any]:
    annotations = {cluster.RELEASE_NAME: "x", cluster.RELEASE_NAMESPACE: "ns", **notes}
    return {"metadata": {"name": name, "annotations": annotations}, "data": dict(data)}


def of_release(look: Cluster) -> list[Finding]:
    release = look.release("x", "ns")
    assert release is not None
    return list(cluster.object_findings(release, *look.of_release(release)))


def test_objects_of_a_release_that_are_gone_altered_or_too_many() -> None:
    maps = [config_map("a", {"k": "w"}), config_map("stray", {}), {"metadata": {"name": "other"}}]
    found = of_release(Cluster([kept(1, "superseded", "---"), kept(2, "deployed")], maps))
    assert [(f.id, f.what, f.found) for f in found] == [
        ("helm.object-changed", "ConfigMap a in ns", "data.k: w instead of v"),
        ("helm.object-missing", "ConfigMap b in ns", "no such object"),
        ("helm.object-extra", "ConfigMap stray in ns", "there, with the release's mark"),
    ]
    assert all(f.where == "ns/x" and f.up is False for f in found)
    as_installed = [config_map("a", {"k": "v"}), config_map("b", {})]
    assert of_release(Cluster([kept(2, "deployed")], as_installed)) == []


def test_the_deployed_revision_counts_and_none_is_none() -> None:
    later = [kept(2, "failed", "---"), kept(10, "failed", "---")]
    for secrets in ([kept(1, "deployed"), *later], [kept(1, "deployed", packed=False)]):
        release = Cluster(secrets, []).release("x", "ns")
        assert release is not None
        assert len(release.objects) == 2
    assert Cluster([], []).release("x", "ns") is None


@pytest.mark.parametrize(
    "secret",
    [
        kept(1, "deployed", release="%%%"),
        {**kept(1, "deployed"), "data": {}},
        kept(1, "deployed", "a: [token: hunter2"),
        kept(1, "deployed", "- just\n- a list"),
    ],
)
def test_a_release_that_cannot_be_read_is_an_error_that_quotes_nothing(
    secret: dict[str, Any],
) -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        Cluster([secret], []).release("x", "ns")
    assert "hunter2" not in str(caught.value)


def test_machines_that_wait_for_a_restart_failed_or_carry_other_firmware() -> None:
    seen = HostFacts(reboot_required="linux-image", failed_unit=frozenset({"a.service"}), end="")
    told = ids(hosts.findings("h", seen))
    assert told == [("host.unit-failed", "h"), ("host.reboot-pending", "h")]
    assert list(hosts.findings("h", HostFacts(end=""))) == []
    golden = {"HGX_FW_GPU_": ("1",), "HGX_FW_BMC_": ("2",)}
    inventory = {"HGX_FW_GPU_SXM_1": "1", "HGX_FW_GPU_SXM_2": "x\x1b", "HGX_FW_BMC_0": "3"}
    found = list(hosts.firmware("h", (1, 2), golden, inventory))
    told = sorted((f.what, f.declared) for f in found)
    assert told == [("HGX_FW_BMC_0", "2"), ("HGX_FW_GPU_SXM_2", "1")]
    assert [f.what for f in hosts.firmware("h", (1,), golden, {})] == ["inventory", "inventory"]
    for error, id_ in (
        (HostKeyMismatchError("h", "look", "p", "r"), "host.key-changed"),
        (UnreachableError("h", "look", "p", "r"), "host.unreachable"),
    ):
        assert hosts.unreached("h", error).id == id_
