"""What is in the way of the GPU Operator in a cluster, each with its remedy, all of it at once."""

import base64
import gzip
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuclusters.core.ports import ClusterObjects, ObjectKind
from gpuclusters.gpu_operator import objects
from gpuclusters.gpu_operator.helm_release import Revision, revisions
from gpuclusters.gpu_operator.preflight import (
    OperatorPreflightInputs,
    Snapshot,
    findings,
    tolerations,
)

GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def plan(**changes: Any) -> OperatorPreflightInputs:
    values: dict[str, Any] = {
        "version": "v26.7.0",
        "nodes": ("gpu-01",),
        "namespace": "gpu-operator",
        "release": "gpu-operator",
        "tolerations": (GPU_TAINT,),
        "nfd_tolerations": (GPU_TAINT,),
    }
    return OperatorPreflightInputs(cluster="c", kubeconfig="k", **values | changes)


def node(**changes: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "gpu-01", "labels": changes.get("labels", {})},
        "spec": {"taints": changes.get("taints", [])},
        "status": {
            "nodeInfo": {
                "containerRuntimeVersion": changes.get("runtime", "containerd://2.3.3-k3s1")
            }
        },
    }


def facts(**changes: Any) -> Snapshot:
    return Snapshot(**{"nodes": {"gpu-01": node()}} | changes)


def names(found: Snapshot, wanted: OperatorPreflightInputs | None = None) -> list[str]:
    return [
        finding.code.removeprefix("gpu-operator.") for finding in findings(found, wanted or plan())
    ]


def helm_owned(name: str, release: str = "gpu-operator", **body: Any) -> dict[str, Any]:
    annotations = {
        "meta.helm.sh/release-name": release,
        "meta.helm.sh/release-namespace": "gpu-operator",
    }
    return {"metadata": {"name": name, "namespace": "x", "annotations": annotations}, **body}


def discovery(**body: Any) -> dict[str, Any]:
    image = "registry.k8s.io/nfd/node-feature-discovery:v0.19.0"
    spec = {"template": {"spec": {"containers": [{"image": image}]}}}
    return {"metadata": {"name": "nfd-worker", "namespace": "nfd"}, "spec": spec} | body


def revision(number: int, status: str, version: str = "v26.3.2") -> Revision:
    return Revision(f"sh.helm.release.v1.gpu-operator.v{number}", number, status, version)


def test_a_fit_cluster_has_nothing_in_the_way() -> None:
    assert names(facts()) == []


def test_an_installed_operator_is_not_in_its_own_way() -> None:
    assert not names(
        facts(
            revisions=(revision(1, "superseded"), revision(2, "deployed")),
            daemon_sets=(discovery(metadata=helm_owned("nfd-worker")["metadata"]),),
            policies=(helm_owned("cluster-policy"),),
            namespace={
                "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}
            },
        )
    )


def test_a_release_that_an_interrupted_run_left_is_named_with_what_frees_it() -> None:
    (finding,) = findings(facts(revisions=(revision(3, "pending-upgrade"),)), plan())
    assert finding.code == "gpu-operator.release-pending"
    assert "another operation is in progress" in finding.problem
    assert (
        "kubectl -n gpu-operator delete secret sh.helm.release.v1.gpu-operator.v3" in finding.remedy
    )


def test_a_release_that_was_deployed_before_is_rolled_back_to_that() -> None:
    stuck = (revision(2, "deployed"), revision(3, "pending-upgrade"))
    (finding,) = findings(facts(revisions=stuck), plan())
    assert "helm -n gpu-operator rollback gpu-operator 2" in finding.remedy


def test_an_old_pending_record_below_a_good_one_is_no_matter() -> None:
    assert not names(facts(revisions=(revision(2, "pending-upgrade"), revision(3, "deployed"))))


@pytest.mark.parametrize(
    ("installed", "wanted", "fault"),
    [
        ("v26.3.2", "v26.7.0", ""),
        ("v26.7.0", "v26.7.1", ""),
        ("v25.10.1", "v26.3.0", ""),
        ("v25.10.1", "v26.7.0", "skips 26.3"),
        ("v25.3.4", "v26.7.0", "skips 25.10, 26.3"),
        ("v26.7.0", "v26.3.3", "no way back"),
        ("v25.3.4", "v25.10.0", ""),
        ("", "v26.7.0", ""),
    ],
)
def test_the_operator_goes_to_the_same_or_the_next_major_release(
    installed: str, wanted: str, fault: str
) -> None:
    found = objects.upgrade_fault(installed, wanted)
    assert fault in found if fault else not found


def test_a_namespace_that_would_refuse_the_operands_is_named() -> None:
    (finding,) = findings(facts(namespace={"metadata": {"name": "gpu-operator"}}), plan())
    assert finding.code == "gpu-operator.namespace-not-privileged"
    assert "pod-security.kubernetes.io/enforce=privileged" in finding.remedy


def test_another_node_feature_discovery_is_named_with_the_value_that_avoids_it() -> None:
    (finding,) = findings(facts(daemon_sets=(discovery(),)), plan())
    assert (finding.code, "nfd.enabled" in finding.remedy) == ("gpu-operator.nfd-present", True)
    assert not names(facts(daemon_sets=(discovery(),)), plan(with_nfd=False))
    assert names(facts(), plan(with_nfd=False)) == ["nfd-missing"]


def test_policies_of_others_and_the_other_kind_of_stack_are_named() -> None:
    other = helm_owned("cluster-policy", release="gpu-operator-1700000000")
    found = facts(policies=(other,), gpu_clusters=({"metadata": {"name": "gpu-cluster"}},))
    assert names(found) == ["foreign-cluster-policy", "gpu-cluster"]


def test_an_installation_by_rke2_itself_is_named() -> None:
    chart = {"metadata": {"name": "gpu-operator", "namespace": "kube-system"}, "spec": {}}
    assert names(facts(helm_charts=(chart,))) == ["helm-chart-resource"]
    other = {"metadata": {"name": "rke2-canal", "namespace": "kube-system"}, "spec": {}}
    assert not names(facts(helm_charts=(other,)))


def test_definitions_that_another_manager_puts_back_or_that_are_too_old_are_named() -> None:
    managed = {"metadata": {"name": "a", "labels": {"olm.managed": "true"}}}
    old = {
        "metadata": {"name": "b"},
        "spec": {"versions": [{"name": "v1", "served": True}]},
        "status": {"storedVersions": ["v1alpha1", "v1"]},
    }
    assert names(facts(definitions=(managed, old))) == ["definitions-managed", "definitions-old"]


@pytest.mark.parametrize(
    ("runtime", "found"),
    [
        ("containerd://1.7.27-k3s1", ["containerd-too-old"]),
        ("containerd://2.0.5-k3s2", []),
        ("cri-o://1.36.0", []),
    ],
)
def test_cdi_needs_containerd_2(runtime: str, found: list[str]) -> None:
    cluster = facts(nodes={"gpu-01": node(runtime=runtime)})
    assert names(cluster) == found
    assert not names(cluster, plan(cdi=False))


@pytest.mark.parametrize(
    ("taint", "tolerated"),
    [
        ({"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}, True),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}, True),
        ({"key": "team", "value": "a", "effect": "PreferNoSchedule"}, True),
        ({"key": "team", "value": "a", "effect": "NoSchedule"}, False),
        ({"key": "CriticalAddonsOnly", "value": "true", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_that_leaves_the_daemon_sets_with_0_pods_is_named(
    taint: dict[str, str], tolerated: bool
) -> None:
    cluster = facts(nodes={"gpu-01": node(taints=[taint])})
    found = findings(cluster, plan())
    assert [f.code for f in found] == (
        [] if tolerated else ["gpu-operator.taint-not-tolerated"] * 2
    )
    if not tolerated:
        assert "daemonsets.tolerations" in found[0].remedy
        assert "node-feature-discovery.worker.tolerations" in found[1].remedy
        exact = [{"key": taint["key"], "value": taint["value"]}]
        assert not names(cluster, plan(tolerations=exact, nfd_tolerations=exact))


def test_nodes_that_are_missing_or_opted_out_are_named() -> None:
    out = node(labels={"nvidia.com/gpu.deploy.operands": "false"})
    wanted = plan(nodes=("gpu-01", "gpu-02"))
    assert names(facts(nodes={"gpu-01": out}), wanted) == ["node-opted-out", "node-missing"]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    found = names(
        facts(
            revisions=(revision(1, "deployed", "v25.3.4"), revision(2, "pending-upgrade")),
            namespace={"metadata": {}},
            daemon_sets=(discovery(),),
            nodes={"gpu-01": node(runtime="containerd://1.7.27")},
        )
    )
    assert found == [
        "release-pending",
        "version-jump",
        "namespace-not-privileged",
        "nfd-present",
        "containerd-too-old",
    ]


def test_tolerations_are_the_charts_own_unless_the_values_say_others() -> None:
    operands, workers = tolerations({})
    assert operands == [GPU_TAINT]
    assert GPU_TAINT in workers
    own = [{"operator": "Exists"}]
    assert tolerations({"daemonsets": {"tolerations": own}})[0] == own
    values = {"node-feature-discovery": {"worker": {"tolerations": own}}}
    assert tolerations(values)[1] == own


def secret(number: int, status: str, document: object) -> dict[str, Any]:
    packed = base64.b64encode(gzip.compress(json.dumps(document).encode()))
    return {
        "metadata": {
            "name": f"sh.helm.release.v1.gpu-operator.v{number}",
            "labels": {
                "owner": "helm",
                "name": "gpu-operator",
                "status": status,
                "version": str(number),
            },
        },
        "data": {"release": base64.b64encode(packed).decode()},
    }


def recorded(*secrets: dict[str, Any]) -> list[Revision]:
    """The revisions of a release in a namespace that has these Secrets of it."""

    def listed(kind: ObjectKind, namespace: str, *, labels: str) -> Sequence[dict[str, Any]]:
        assert (kind.kind, namespace) == ("Secret", "gpus")
        assert labels == "owner=helm,name=gpu-operator"
        return secrets

    cluster = cast(ClusterObjects, SimpleNamespace(list=listed))
    return revisions(cluster, "gpus", "gpu-operator")


def test_helms_own_records_are_read() -> None:
    chart = {"chart": {"metadata": {"version": "v26.3.2"}}}
    found = recorded(
        secret(10, "pending-upgrade", {"chart": {"metadata": {"version": "v26.7.0"}}}),
        secret(9, "deployed", chart),
    )
    assert [(r.number, r.status, r.chart_version) for r in found] == [
        (9, "deployed", "v26.3.2"),
        (10, "pending-upgrade", "v26.7.0"),
    ]
    assert Snapshot(revisions=tuple(found)).installed == "v26.3.2"


def test_a_record_that_cannot_be_read_hides_no_pending_release() -> None:
    broken = secret(1, "pending-install", {}) | {"data": {"release": "bm90IGd6aXA="}}
    (found,) = recorded(broken)
    assert found.is_pending
    assert found.chart_version == ""


def test_a_config_map_with_other_content_has_another_name_which_the_values_tell() -> None:
    one, other = {"dcgm-metrics.csv": "a"}, {"dcgm-metrics.csv": "b"}
    name = objects.config_map_name("dcgm-metrics", one)
    assert name != objects.config_map_name("dcgm-metrics", other)
    values: dict[str, Any] = {"dcgmExporter": {"enabled": True, "config": {"create": False}}}
    assert objects.with_configs(values, {"dcgm-metrics": one}) == {
        "dcgmExporter": {"enabled": True, "config": {"create": False, "name": name}}
    }
    assert values == {"dcgmExporter": {"enabled": True, "config": {"create": False}}}


def test_config_maps_that_nobody_reads_or_that_the_values_contradict_are_refused() -> None:
    with pytest.raises(ValueError, match="no operand reads a ConfigMap 'driver'"):
        objects.with_configs({}, {"driver": {}})
    with pytest.raises(ValueError, match=r"values\.migManager\.config says .*leave name out"):
        objects.with_configs(
            {"migManager": {"config": {"name": "mine"}}}, {"mig-parted": {"config.yaml": "x"}}
        )


def test_null_values_are_found_with_their_paths() -> None:
    values: dict[str, Any] = {
        "driver": {"version": None, "env": []},
        "toolkit": None,
        "cdi": {"enabled": True},
    }
    assert objects.nulls(values) == ["values.driver.version", "values.toolkit"]
