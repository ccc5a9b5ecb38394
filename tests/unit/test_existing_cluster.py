"""The GPU Operator on a cluster that was there: what its toolkit is told, and what its nodes say."""

import copy
from typing import Any

import pytest

from gpuclusters.cli import doctor, reach
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.project import Project
from gpuclusters.config import rke2_plan
from gpuclusters.config.rke2_cluster import FoundCluster
from gpuclusters.config.stack import ClusterType, StackConfig, parse
from gpuclusters.drawing.from_configuration import declared
from gpuclusters.gpu_operator import preflight
from gpuclusters.gpu_operator.preflight import OperatorPreflightInputs, Snapshot
from tests.fixtures.tables import beside
from tests.unit.config.documents import document

CASES = beside(__file__, "existing_cluster.yaml")


def cluster(distribution: str = "kubeadm", **changes: Any) -> FoundCluster:
    """A right one; a change is of the section."""
    kubernetes = {"distribution": distribution}
    if "default" in changes:
        kubernetes["default-runtime"] = changes.pop("default")
    case = {"found": True, "rke2": {"kubernetes": kubernetes, **changes}}
    parsed = parse(document(ClusterType.RKE2, case))
    assert isinstance(parsed, StackConfig), "\n".join(map(str, parsed))
    assert isinstance(parsed.section, FoundCluster)
    return parsed.section


@pytest.mark.parametrize(("distribution", "operator", "default", "told"), CASES["toolkit"])
def test_the_toolkit_is_told_where_containerd_is_and_whether_its_runtime_is_the_default(
    distribution: str, operator: str, default: bool, told: dict[str, str]
) -> None:
    config = cluster(distribution, default=default, operator={"version": operator})
    values = rke2_plan.operator_values(config)
    assert {one["name"]: one["value"] for one in values["toolkit"]["env"]} == told
    assert values["driver"] == {"enabled": False}


def node(**status: Any) -> dict[str, Any]:
    """A node by kubeadm; `kubelet`, `runtime`, `labels`, `socket` and `handlers` where it differs."""
    found: dict[str, Any] = {
        "metadata": {"name": "g1", "labels": status.get("labels", {}), "annotations": {}},
        "status": {
            "nodeInfo": {
                "kubeletVersion": status.get("kubelet", "v1.35.7"),
                "containerRuntimeVersion": status.get("runtime", "containerd://2.2.6"),
            },
            "runtimeHandlers": [{"name": name} for name in status.get("handlers", ("", "runc"))],
        },
    }
    if socket := status.get("socket"):
        found["metadata"]["annotations"]["kubeadm.alpha.kubernetes.io/cri-socket"] = socket
    return found


def found(config: FoundCluster, live: dict[str, Any], **more: Any) -> list[tuple[str, str, str]]:
    """What is in the way on node g1, with whatever else is in the cluster."""
    inputs = OperatorPreflightInputs.model_validate(
        {"cluster": "c", "kubeconfig": "k", **rke2_plan.preflight(config), "nodes": ("g1",)},
        by_name=True,
    )
    snapshot = Snapshot(nodes={"g1": live}, **more)
    return [
        (one.code.removeprefix("gpu-operator."), one.problem, one.remedy)
        for one in preflight.findings(snapshot, inputs)
    ]


@pytest.mark.parametrize(("distribution", "live"), CASES["taken"])
def test_a_node_that_is_as_stated_or_does_not_say_is_taken(
    distribution: str, live: dict[str, Any]
) -> None:
    assert found(cluster(distribution), node(**live)) == []


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["code"])
def test_a_node_that_is_otherwise_than_stated_is_refused_with_what_to_write(
    case: dict[str, Any],
) -> None:
    told = {code: rest for code, *rest in found(cluster(case["stated"]), node(**case["live"]))}
    problem, remedy = told[case["code"]]
    assert case["says"] in problem
    assert case["remedy"] in remedy


def test_a_socket_elsewhere_is_taken_once_the_toolkit_is_told() -> None:
    told = {"version": "v26.7.0", "values": {"toolkit": {"env": CASES["told of a socket"]}}}
    live = node(socket="unix:///run/other/containerd.sock")
    assert found(cluster(operator=told), live) == []


@pytest.mark.parametrize(
    ("operator", "file"),
    [
        ("v26.7.0", "/etc/containerd/conf.d/99-nvidia.toml or"),
        ("v25.3.4", "out of /etc/containerd/config"),
    ],
)
def test_what_another_toolkit_left_is_found_by_what_containerd_says(
    operator: str, file: str
) -> None:
    live = node(handlers=("", "runc", "nvidia", "nvidia-cdi"))
    config = cluster(operator={"version": operator})
    ((code, problem, remedy),) = found(config, live)
    assert code == "toolkit-left"
    assert "node g1 has the runtimes nvidia, nvidia-cdi" in problem
    assert file in remedy
    # Ours, of a release that is there; and one of the host, which is to stay.
    helm = "meta.helm.sh/release-"
    ours = {f"{helm}name": "gpu-operator", f"{helm}namespace": "gpu-operator"}
    policy = {"metadata": {"name": "cluster-policy", "annotations": ours}}
    assert found(config, live, policies=[policy]) == []
    kept = {"version": operator, "values": {"toolkit": {"enabled": False}}}
    assert found(cluster(operator=kept), live) == []
    # RKE2 and K3s find the programs by themselves: nothing was left that they would read.
    rancher = cluster("k3s", operator={"version": operator})
    assert found(rancher, copy.deepcopy(live)) == []


def test_no_machine_is_logged_in_to(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="logs in to none"):
        reach.reach(Project(tmp_path, tmp_path), "s", cluster(), ["g1"])
    secrets = doctor.StackSecrets({}, readable=True)
    (said,) = doctor.of_stack(cluster(), None, secrets)
    assert "no machine is checked over SSH" in said.text


def test_the_picture_says_that_the_cluster_was_there() -> None:
    assert declared(cluster("k3s"), "").control_plane == "a cluster that is there already (k3s)"
