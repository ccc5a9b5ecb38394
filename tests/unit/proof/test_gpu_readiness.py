"""When GPUs are ready, what is waited for, and what is said about what blocks it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from gpuclusters.core.errors import UnreachableError
from gpuclusters.core.finding import Refused
from gpuclusters.core.ports import ClusterObjects, ObjectKind
from gpuclusters.gpu_operator.objects import CLUSTER_POLICY, EVENT
from gpuclusters.gpu_operator.pods import blocked
from gpuclusters.gpu_operator.readiness import ReadinessInputs, Snapshot, missing, unseen, wait
from gpuclusters.tenancy.objects import NODE, POD
from tests.fixtures.tables import beside
from tests.fixtures.waiting import Waiting

EXPECTED = {"gpu-01": {"nvidia.com/gpu": 8}}
CASES = beside(__file__, "readiness.yaml")


def policy(reason: str = "Reconciled", *, ready: bool = True, message: str = "") -> dict[str, Any]:
    """As `internal/conditions/clusterpolicy.go` of v26.7.0 writes it: two conditions, of which one holds."""
    kinds = (("Ready", ready, reason), ("Error", not ready, "Ready" if ready else reason))
    return {
        "metadata": {"name": "cluster-policy", "creationTimestamp": "2026-11-20T10:00:00Z"},
        "status": {
            "state": "ready" if ready else "notReady",
            "conditions": [
                {"type": kind, "status": str(holds), "reason": why, "message": message}
                for kind, holds, why in kinds
            ],
        },
    }


def node(allocatable: int = 8, **labels: Any) -> dict[str, Any]:
    found = {"nvidia.com/gpu.present": "true"} | labels
    return {
        "metadata": {"name": "gpu-01", "labels": {k: v for k, v in found.items() if v}},
        "status": {"allocatable": {"cpu": "96", "nvidia.com/gpu": str(allocatable)}},
    }


def pod(app: str = "nvidia-operator-validator", *, ready: bool = True, **status: Any) -> Any:
    return {
        "metadata": {"name": f"{app}-x", "uid": f"{app}-uid", "labels": {"app": app}},
        "spec": {"nodeName": "gpu-01"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            **status,
        },
    }


def snapshot(**changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "policies": [policy()],
        "nodes": {"gpu-01": node()},
        "daemon_sets": [],
        "pods": [pod()],
        "events": [],
    }
    return Snapshot(**values | changes)


def lines(found: Snapshot) -> list[str]:
    return [one.problem for one in missing(found, EXPECTED)]


@pytest.mark.parametrize("case", CASES["missing"])
def test_ready_is_policy_and_nodes_and_validators_and_else_it_is_said_what_is_missing(
    case: str,
) -> None:
    given = {"policy": {"reason": "Reconciled"}, "node": {}} | CASES["missing"][case]
    policies = [policy(**given["policy"])] if given["policy"] else []
    if given["policy"] == {}:
        policies = [{"metadata": {"name": "cluster-policy"}}]
    if "older" in given:
        policies[0]["metadata"] |= {"name": "a", "creationTimestamp": "2026-11-20T11:00:00Z"}
        policies.append(policy(**given["older"]))
    wanted = given["node"]
    nodes = (
        {"gpu-01": node(wanted.get("offers", 8), **wanted.get("labels", {}))}
        if wanted is not None
        else {}
    )
    daemon_sets = [given["daemon-set"]] if "daemon-set" in given else []
    found = lines(snapshot(policies=policies, nodes=nodes, daemon_sets=daemon_sets))
    assert len(found) == bool(given["says"]), found
    assert all(text in found[0] for text in given["says"]), found


@pytest.mark.parametrize("case", CASES["blocked"])
def test_a_pod_that_is_not_ready_says_how_far_it_is_or_what_is_wrong(case: str) -> None:
    given = {"node": "gpu-01", "status": {}, "events": [], "never": []} | CASES["blocked"][case]
    starts = pod(ready=False) | {"spec": {"nodeName": given["node"]}, "status": given["status"]}
    uid = starts["metadata"]["uid"]
    events = [
        {"type": "Normal", "involvedObject": {"uid": "x" if "another" in one else uid}, **one}
        for one in given["events"]
    ]
    text = blocked(starts, events)
    assert all(part in text for part in given["says"]), text
    assert not [part for part in given["never"] if part in text], text


@pytest.mark.parametrize(("section", "image", "late"), CASES["late"])
def test_the_good_state_of_the_version_before_is_not_taken_for_this_ones(
    section: dict[str, Any], image: str, late: str
) -> None:
    wanted = policy()
    known = {"repository": "nvcr.io/nvidia", "image": "x", "version": "v1", "config": {"name": "a"}}
    wanted["spec"] = {"devicePlugin": {**known, **section}}
    volume = {"name": "a", "configMap": {"name": "a"}}
    template = {"spec": {"containers": [{"image": image}], "volumes": [volume]}}
    daemon_set = {
        "metadata": {"name": "nvidia-device-plugin-daemonset", "generation": 1},
        "spec": {"template": template},
        "status": {"observedGeneration": 1},
    }
    found = lines(snapshot(policies=[wanted], daemon_sets=[daemon_set]))
    assert [one.rpartition("named ")[2] for one in found] == ([late] if late else [])


def test_a_driver_has_its_operating_system_behind_its_version() -> None:
    section = {"repository": "nvcr.io/nvidia", "image": "driver", "version": "580.178.04"}
    containers = [{"image": "nvcr.io/nvidia/driver:580.178.04-ubuntu24.04"}]
    daemon_set = {
        "metadata": {"name": "nvidia-driver-daemonset"},
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    assert unseen({"spec": {"driver": section}}, daemon_set) == ""
    newer = {"spec": {"driver": {**section, "version": "595.91.07"}}}
    assert unseen(newer, daemon_set) == "image nvcr.io/nvidia/driver:595.91.07"


def test_what_blocks_a_node_is_its_pods_and_the_validator_that_has_not_passed() -> None:
    waits = {"name": "c", "image": "driver:1", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    driver = pod("nvidia-driver-daemonset", ready=False, containerStatuses=[waits])
    concerned = {"involvedObject": {"uid": driver["metadata"]["uid"]}, "type": "Warning"}
    event = {**concerned, "reason": "Failed", "message": "manifest unknown"}
    found = lines(snapshot(nodes={"gpu-01": node(0)}, pods=[driver], events=[event]))
    assert "0 of 8 nvidia.com/gpu" in found[0]
    assert "pod nvidia-driver-daemonset-x on gpu-01: container c waits, ImagePull" in found[0]
    assert "event Failed: manifest unknown" in found[0]
    assert "check repository, tag and pull secret" in found[0]
    assert "its validator has not passed (there is no such pod on the node)" in found[1]


@dataclass
class Cluster:
    """Shows one thing after the other, then the last for ever; a text is an API server that is away."""

    shows: Sequence[Snapshot | str]
    target: str = "API server https://a:6443"
    looks: int = 0

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[Any]:
        shown = self.shows[min(self.looks, len(self.shows) - 1)]
        if isinstance(shown, str):
            self.looks += 1
            raise UnreachableError(self.target, f"list {kind.plural}", shown, "look at it")
        self.looks += kind == EVENT  # asked for last
        of = {CLUSTER_POLICY: shown.policies, NODE: [*shown.nodes.values()], POD: shown.pods}
        return of.get(kind, ())


def inputs(**changes: Any) -> ReadinessInputs:
    values = {"cluster": "c", "kubeconfig": "k", "expected": EXPECTED, "timeout_seconds": 60}
    return ReadinessInputs.model_validate(values | changes)


def waited(
    cluster: Cluster, clock: Waiting | None = None, reporter: Waiting | None = None
) -> dict[str, Any]:
    shown = cast(ClusterObjects, cluster)
    return wait(inputs(), shown, clock or Waiting(), reporter or Waiting())


def test_ready_once_is_not_ready_the_policy_still_tells_of_the_time_before() -> None:
    cluster = Cluster([snapshot(), snapshot(policies=[policy("x", ready=False)]), snapshot()])
    found = waited(cluster)
    assert cluster.looks == 4
    assert found["allocatable"] == {"gpu-01": {"nvidia.com/gpu": 8}}
    assert (found["reason"], found["drift"]) == ("Reconciled", [])


def test_an_api_server_that_goes_away_is_waited_for_and_said() -> None:
    cluster = Cluster(["connection refused", "connection refused", snapshot()])
    told = Waiting()
    waited(cluster, reporter=told)
    assert told.notes == [
        "API server https://a:6443: waiting for: the API server does not answer (connection refused) "
        "(0s of 1m00s)"
    ]


def test_the_end_of_patience_tells_everything_that_is_missing() -> None:
    clock = Waiting()
    bad = snapshot(policies=[policy("OperandNotReady", ready=False)], nodes={"gpu-01": node(6)})
    with pytest.raises(Refused) as failed:
        waited(Cluster([bad]), clock)
    assert clock.time <= 60
    text = str(failed.value)
    assert "not ready after 60 s" in text
    assert "OperandNotReady" in text
    assert "6 of 8 nvidia.com/gpu" in text
    assert "run `up` again" in text


@pytest.mark.parametrize("expected", [{}, {"gpu-01": {}}, {"gpu-01": {"gpus": 8}}])
def test_an_expectation_that_cannot_be_looked_for_is_refused(expected: Any) -> None:
    with pytest.raises(ValueError, match=r"gpu-01|at least 1"):
        inputs(expected=expected)
