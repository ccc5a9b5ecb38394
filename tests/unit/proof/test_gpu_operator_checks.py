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
from tests.fixtures.tables import beside

CASES = beside(__file__, "operator.yaml")
OTHERS = beside(__file__, "upgrades.yaml")
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


def revision(number: int, status: str, version: str = "v26.3.2") -> Revision:
    return Revision(f"sh.helm.release.v1.gpu-operator.v{number}", number, status, version)


@pytest.mark.parametrize("case", CASES)
def test_what_is_in_the_way_of_the_operator_is_named_with_its_remedy(case: str) -> None:
    given = {"found": {}, "wanted": {}, "node": {}, "says": []} | CASES[case]
    found = dict(given["found"])
    found["revisions"] = [revision(**one) for one in found.get("revisions", ())]
    told = findings(
        facts(nodes={"gpu-01": node(**given["node"])}, **found), plan(**given["wanted"])
    )
    assert [one.code.removeprefix("gpu-operator.") for one in told] == given["codes"]
    for text in given["says"]:
        assert text in f"{told[0].problem} {told[0].remedy}"


@pytest.mark.parametrize(("installed", "wanted", "fault"), OTHERS["upgrades"])
def test_the_operator_goes_to_the_same_or_the_next_major_release(
    installed: str, wanted: str, fault: str
) -> None:
    found = objects.upgrade_fault(installed, wanted)
    assert fault in found if fault else not found


@pytest.mark.parametrize(
    ("taint", "tolerated"),
    [(taint, word == "tolerated") for word, taints in OTHERS["taints"].items() for taint in taints],
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
        assert not findings(cluster, plan(tolerations=exact, nfd_tolerations=exact))


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


def test_helms_own_records_are_read_and_one_that_cannot_be_hides_no_pending_release() -> None:
    secrets = [
        secret(10, "pending-upgrade", {"chart": {"metadata": {"version": "v26.7.0"}}}),
        secret(9, "deployed", {"chart": {"metadata": {"version": "v26.3.2"}}}),
        secret(11, "pending-install", {}) | {"data": {"release": "bm90IGd6aXA="}},
    ]

    def listed(kind: ObjectKind, namespace: str, *, labels: str) -> Sequence[dict[str, Any]]:
        assert (kind.kind, namespace) == ("Secret", "gpus")
        assert labels == "owner=helm,name=gpu-operator"
        return secrets

    cluster = cast(ClusterObjects, SimpleNamespace(list=listed))
    found = revisions(cluster, "gpus", "gpu-operator")
    assert [(r.number, r.status, r.chart_version) for r in found] == [
        (9, "deployed", "v26.3.2"),
        (10, "pending-upgrade", "v26.7.0"),
        (11, "pending-install", ""),
    ]
    assert found[-1].is_pending
    assert Snapshot(revisions=tuple(found)).installed == "v26.3.2"


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
