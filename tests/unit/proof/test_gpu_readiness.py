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
from tests.fixtures.waiting import Waiting

EXPECTED = {"gpu-01": {"nvidia.com/gpu": 8}}


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
    return {
        "metadata": {"name": "gpu-01", "labels": {"nvidia.com/gpu.present": "true", **labels}},
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


def test_ready_is_policy_and_nodes_and_validators() -> None:
    assert lines(snapshot()) == []


@pytest.mark.parametrize("reason", ["NoGPUNodes", "NFDLabelsMissing"])
def test_a_policy_that_is_ready_because_there_is_nothing_to_do_is_not_ready(reason: str) -> None:
    (line,) = lines(snapshot(policies=[policy(reason)]))
    assert f"ready with reason {reason}, not Reconciled" in line


def test_a_policy_that_is_not_there_or_new_or_failing_is_told() -> None:
    assert "ClusterPolicy cluster-policy is not there" in lines(snapshot(policies=[]))[0]
    fresh = {"metadata": {"name": "cluster-policy"}}
    assert "no state yet" in lines(snapshot(policies=[fresh]))[0]
    failing = policy("OperandNotReady", ready=False, message="states not ready: [state-driver]")
    (line,) = lines(snapshot(policies=[failing]))
    assert "OperandNotReady: states not ready: [state-driver]" in line


def test_the_oldest_policy_counts_as_the_operator_has_it() -> None:
    younger = policy("ReconcileFailed", ready=False)
    younger["metadata"] |= {"name": "a", "creationTimestamp": "2026-11-20T11:00:00Z"}
    assert lines(snapshot(policies=[younger, policy()])) == []


def test_fewer_devices_than_expected_name_what_may_have_taken_them() -> None:
    (line,) = lines(snapshot(nodes={"gpu-01": node(7)}))
    assert line.startswith("node gpu-01: 7 of 8 nvidia.com/gpu allocatable")
    assert "XID" in line


def test_a_node_without_discovered_gpus_an_absent_one_and_one_in_an_upgrade_are_told() -> None:
    bare = node()
    bare["metadata"]["labels"] = {}
    assert "no label nvidia.com/gpu.present=true" in lines(snapshot(nodes={"gpu-01": bare}))[0]
    assert lines(snapshot(nodes={})) == ["node gpu-01 is not in the cluster"]
    busy = node(8, **{"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"})
    assert "its driver is being updated" in lines(snapshot(nodes={"gpu-01": busy}))[0]
    done = node(8, **{"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"})
    assert lines(snapshot(nodes={"gpu-01": done})) == []


def test_pods_of_the_version_before_are_waited_for() -> None:
    daemon_set: dict[str, Any] = {
        "metadata": {"name": "nvidia-driver-daemonset", "uid": "d", "generation": 2},
        "status": {
            "desiredNumberScheduled": 2,
            "numberReady": 2,
            "updatedNumberScheduled": 1,
            "observedGeneration": 2,
        },
    }
    (line,) = lines(snapshot(daemon_sets=[daemon_set]))
    assert "2 of 2 pods ready, 1 of this version" in line
    daemon_set["metadata"]["generation"] = 3
    assert "is not looked at yet" in lines(snapshot(daemon_sets=[daemon_set]))[0]


@pytest.mark.parametrize(
    ("section", "image", "config", "late"),
    [
        ({}, "nvcr.io/nvidia/x:v1", "a", ""),
        ({"version": "v2"}, "nvcr.io/nvidia/x:v1", "a", "image nvcr.io/nvidia/x:v2"),
        ({"version": "v10"}, "nvcr.io/nvidia/x:v1", "a", "image nvcr.io/nvidia/x:v10"),
        ({"version": "sha256:ab"}, "nvcr.io/nvidia/x@sha256:ab", "a", ""),
        ({"config": {"name": "b"}}, "nvcr.io/nvidia/x:v1", "a", "ConfigMap b"),
        ({"repository": ""}, "elsewhere/x:v9", "a", ""),
    ],
)
def test_the_good_state_of_the_version_before_is_not_taken_for_this_ones(
    section: dict[str, Any], image: str, config: str, late: str
) -> None:
    wanted = policy()
    known = {"repository": "nvcr.io/nvidia", "image": "x", "version": "v1", "config": {"name": "a"}}
    wanted["spec"] = {"devicePlugin": {**known, **section}}
    volume = {"name": config, "configMap": {"name": config}}
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


def test_what_blocks_a_node_is_the_pod_the_image_and_the_event() -> None:
    image = "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"
    waiting = {"reason": "ImagePullBackOff", "message": f"Back-off pulling image {image}"}
    driver = pod(
        "nvidia-driver-daemonset",
        ready=False,
        containerStatuses=[
            {"name": "nvidia-driver-ctr", "image": image, "state": {"waiting": waiting}}
        ],
    )
    event = {
        "type": "Warning",
        "reason": "Failed",
        "message": "manifest unknown",
        "involvedObject": {"uid": "nvidia-driver-daemonset-uid"},
    }
    found = lines(snapshot(nodes={"gpu-01": node(0)}, pods=[driver], events=[event]))
    assert "0 of 8 nvidia.com/gpu" in found[0]
    for part in (
        "pod nvidia-driver-daemonset-x on gpu-01",
        "container nvidia-driver-ctr waits, ImagePullBackOff",
        f"image {image}",
        "event Failed: manifest unknown",
        "check repository, tag and pull secret",
    ):
        assert part in found[0]
    assert "its validator has not passed (there is no such pod on the node)" in found[1]


def test_a_pod_that_waits_for_another_operand_says_which_of_its_init_containers() -> None:
    waits = pod(
        ready=False,
        initContainerStatuses=[
            {"name": "driver-validation", "state": {"terminated": {"exitCode": 0}}},
            {"name": "toolkit-validation", "image": "v", "state": {"running": {}}},
        ],
        containerStatuses=[{"name": "done", "state": {"waiting": {"reason": "PodInitializing"}}}],
    )
    text = blocked(waits, [])
    assert "Init:1/2, container toolkit-validation runs and is not ready yet" in text
    assert "PodInitializing" not in text


BACK_OFF = {
    "reason": "CrashLoopBackOff",
    "message": "back-off 10s restarting failed container=c pod=p_n(1)",
}
NO_DEVICE = {
    "exitCode": 128,
    "reason": "StartError",
    "message": "OCI: unresolvable CDI devices management.nvidia.com/gpu=all\n",
}


@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize(
    ("state", "begin"),
    [
        ({"waiting": BACK_OFF}, "container c waits, CrashLoopBackOff: back-off 10s restarting"),
        ({"running": {}}, "container c runs and is not ready yet (image i)"),
    ],
)
@pytest.mark.parametrize(
    ("ended", "end", "meaning"),
    [
        (
            NO_DEVICE,
            "(image i); before that it ended, StartError with exit code 128: OCI: unresolvable CDI "
            "devices management.nvidia.com/gpu=all [",
            "a toolkit of 1.17 or older",
        ),
        (
            {"exitCode": 137, "reason": "OOMKilled"},
            "(image i); before that it ended, OOMKilled with exit code 137 [",
            "it needs more memory than its limit",
        ),
        (
            {"exitCode": 14, "reason": "Error", "message": ""},
            "(image i); before that it ended, Error with exit code 14 [",
            "the infoROM of a GPU is corrupt",
        ),
    ],
)
def test_a_container_that_is_started_again_and_again_says_why_it_ended(
    kind: str, state: Any, begin: str, ended: Any, end: str, meaning: str
) -> None:
    crashes = {"name": "c", "image": "i", "state": state, "lastState": {"terminated": ended}}
    status: dict[str, Any] = {kind: [crashes]}
    text = blocked(pod(ready=False) | {"status": status}, [])
    for part in (begin, end, meaning):
        assert part in text


def test_a_container_that_has_never_ended_says_nothing_of_an_end() -> None:
    first = {"name": "c", "image": "i", "state": {"running": {}}, "lastState": {}}
    text = blocked(pod(ready=False, containerStatuses=[first]), [])
    assert text.endswith("container c runs and is not ready yet (image i)")


@pytest.mark.parametrize(
    ("node", "status", "at"),
    [
        (None, {}, "(on no node): the scheduler has not placed it yet"),
        ("gpu-01", {}, "on gpu-01: its kubelet has not begun with it yet"),
        (
            "gpu-01",
            {
                "containerStatuses": [{"name": "c", "ready": True, "state": {"running": {}}}],
                "conditions": [{"type": "Ready", "status": "False", "reason": "GatesNotReady"}],
            },
            "all its containers are ready, and the pod is not: GatesNotReady",
        ),
    ],
)
def test_a_pod_that_starts_as_it_should_says_how_far_it_is(
    node: str | None, status: dict[str, Any], at: str
) -> None:
    starts = pod(ready=False) | {"spec": {"nodeName": node}, "status": status}
    assert blocked(starts, []).endswith(at)


def test_an_image_that_is_being_pulled_is_named_until_it_is_there() -> None:
    creating = {"waiting": {"reason": "ContainerCreating"}}
    starts = pod(ready=False, containerStatuses=[{"name": "c", "image": "i:1", "state": creating}])
    about = {"involvedObject": {"uid": starts["metadata"]["uid"]}, "type": "Normal"}
    begun = {**about, "reason": "Pulling", "message": 'Pulling image "i:1"'}
    another = {**begun, "involvedObject": {"uid": "another"}, "message": 'Pulling image "j:1"'}
    text = blocked(starts, [another, begun])
    assert "container c waits, ContainerCreating (image i:1); image i:1 is being pulled" in text
    assert "j:1" not in text
    message = 'Successfully pulled image "i:1" in 3s. Image size: 5 bytes.'
    there = {**about, "reason": "Pulled", "message": message}
    assert "being pulled" not in blocked(starts, [there, begun])


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
