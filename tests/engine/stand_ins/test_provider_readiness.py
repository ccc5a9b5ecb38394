from __future__ import annotations

import pytest

from engine.stand_ins.kubernetes.readiness import Surroundings, custom, progress
from engine.stand_ins.kubernetes.waiting import timeout_seconds, what_holds


def obj(kind, api_version, spec=None, status=None, generation=1, **metadata):
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "x", "generation": generation, **metadata},
        "spec": spec or {},
        "status": status or {},
    }


def condition(kind, status="True", reason="R", message="m"):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def pod(status, node="n1"):
    return obj("Pod", "v1", {"nodeName": node} if node else {}, status)


def container(name, state, ready=False):
    return {"name": name, "image": "i", "ready": ready, "state": state}


SEEN = {"observedGeneration": 1}
WAITING = {
    "name": "c",
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
}

READY = [
    obj("ConfigMap", "v1"),
    obj("ResourceQuota", "v1", {"hard": {"cpu": "1"}}, {"hard": {"cpu": "1"}}),
    obj("Namespace", "v1", status={"phase": "Active"}),
    obj("Deployment", "apps/v1", {"replicas": 0}, SEEN),
    obj(
        "Deployment",
        "apps/v1",
        {"replicas": 2},
        {**SEEN, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
    ),
    obj("DaemonSet", "apps/v1", status={**SEEN, "desiredNumberScheduled": 0}),
    obj(
        "DaemonSet",
        "apps/v1",
        {"updateStrategy": {"type": "OnDelete"}},
        {**SEEN, "desiredNumberScheduled": 2, "numberAvailable": 2},
    ),
    obj(
        "StatefulSet",
        "apps/v1",
        {"replicas": 2},
        {
            **SEEN,
            "readyReplicas": 2,
            "updatedReplicas": 2,
            "currentRevision": "a",
            "updateRevision": "a",
        },
    ),
    obj(
        "StatefulSet",
        "apps/v1",
        {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}},
        {
            **SEEN,
            "readyReplicas": 2,
            "updatedReplicas": 1,
            "currentRevision": "a",
            "updateRevision": "b",
        },
    ),
    obj("Job", "batch/v1", status={"conditions": [condition("Complete")]}),
    obj("Job", "batch/v1", {"suspend": True}),
    obj("Pod", "v1", status={"phase": "Running", "conditions": [condition("Ready")]}),
    obj("Pod", "v1", status={"phase": "Succeeded"}),
    obj("PersistentVolumeClaim", "v1", status={"phase": "Bound"}),
    obj("Service", "v1", {"type": "ExternalName"}),
    obj("Service", "v1", {"clusterIP": "None", "selector": {"a": "b"}}),
    obj("Service", "v1", {"clusterIP": "10.0.0.1"}),
    obj(
        "CustomResourceDefinition",
        "apiextensions.k8s.io/v1",
        status={"conditions": [condition("NamesAccepted"), condition("Established")]},
    ),
]

NOT_YET = [
    (obj("Namespace", "v1", status={"phase": "Terminating"}), "Terminating"),
    (obj("ResourceQuota", "v1", {"hard": {"cpu": "2"}}, {"hard": {"cpu": "1"}}), "not in force"),
    (obj("Namespace", "v1", status={"phase": "Active"}, deletionTimestamp="now"), "being deleted"),
    (obj("Deployment", "apps/v1", status=SEEN, generation=2), "has not looked at this version"),
    (
        obj("Deployment", "apps/v1", status={**SEEN, "updatedReplicas": 0}),
        "0 of 1 replicas are updated",
    ),
    (
        obj("Deployment", "apps/v1", status={**SEEN, "replicas": 2, "updatedReplicas": 1}),
        "1 old replicas are still there",
    ),
    (
        obj("Deployment", "apps/v1", status={**SEEN, "replicas": 1, "updatedReplicas": 1}),
        "0 of 1 updated replicas are available",
    ),
    (
        obj("DaemonSet", "apps/v1", status={**SEEN, "desiredNumberScheduled": 2}),
        "0 of 2 pods are updated",
    ),
    (obj("StatefulSet", "apps/v1", {"replicas": 3}, {**SEEN, "readyReplicas": 1}), "1 of 3"),
    (obj("Job", "batch/v1", {"completions": 2}, {"succeeded": 1}), "1 of 2 completions"),
    (
        obj("Pod", "v1", status={"phase": "Pending", "containerStatuses": [WAITING]}),
        "ImagePullBackOff",
    ),
    (
        obj(
            "Pod",
            "v1",
            status={"conditions": [condition("PodScheduled", "False", "Unschedulable")]},
        ),
        "Unschedulable",
    ),
    (pod({}, node=""), "the scheduler has not placed it yet"),
    (pod({"phase": "Pending"}), "the kubelet of n1 has not begun with it yet"),
    (
        pod({"containerStatuses": [container("c", {"waiting": {"reason": "ContainerCreating"}})]}),
        "container c is being created (image i, which is pulled if n1 lacks it)",
    ),
    (
        pod(
            {
                "conditions": [condition("Ready", "False", "ContainersNotReady")],
                "containerStatuses": [
                    container("a", {"running": {}}, ready=True),
                    container("b", {"running": {}}),
                    container("c", {"terminated": {"exitCode": 0, "reason": "Completed"}}),
                ],
            }
        ),
        "container b runs and is not ready yet; container c has ended",
    ),
    (
        pod(
            {
                "initContainerStatuses": [
                    container("a", {"terminated": {"exitCode": 0, "reason": "Completed"}}),
                    container("b", {"running": {}}),
                ],
                "containerStatuses": [container("c", {"waiting": {"reason": "PodInitializing"}})],
            }
        ),
        "init container 2 of 2: container b runs",
    ),
    (
        pod(
            {
                "conditions": [condition("Ready", "False", "ReadinessGatesNotReady")],
                "containerStatuses": [container("c", {"running": {}}, ready=True)],
            }
        ),
        "condition Ready is False (ReadinessGatesNotReady",
    ),
    (obj("PersistentVolumeClaim", "v1", status={"phase": "Pending"}), "Pending"),
    (obj("Service", "v1", {"clusterIP": "10.0.0.1", "selector": {"app": "x"}}), "app=x"),
    (obj("Service", "v1", {"type": "LoadBalancer"}), "load balancer"),
    (obj("CustomResourceDefinition", "apiextensions.k8s.io/v1"), "Established is not reported"),
]

FAILED = [
    (
        obj(
            "Deployment",
            "apps/v1",
            status={
                **SEEN,
                "conditions": [condition("Progressing", "False", "ProgressDeadlineExceeded")],
            },
        ),
        "ProgressDeadlineExceeded",
    ),
    (
        obj("Job", "batch/v1", status={"conditions": [condition("Failed", reason="Backoff")]}),
        "Backoff",
    ),
    (obj("Pod", "v1", status={"phase": "Failed", "message": "evicted"}), "evicted"),
    (obj("PersistentVolumeClaim", "v1", status={"phase": "Lost"}), "Lost"),
    (
        obj(
            "CustomResourceDefinition",
            "apiextensions.k8s.io/v1",
            status={"conditions": [condition("NamesAccepted", "False", "PluralConflict")]},
        ),
        "PluralConflict",
    ),
]


@pytest.mark.parametrize("seen", READY, ids=lambda o: o["kind"])
def test_an_object_is_ready(seen) -> None:
    assert progress(seen).ready


@pytest.mark.parametrize(
    ("seen", "why"), NOT_YET, ids=lambda v: v if isinstance(v, str) else v["kind"]
)
def test_an_object_is_still_on_its_way_and_says_why(seen, why) -> None:
    found = progress(seen)
    assert not found.ready
    assert not found.failed
    assert why in found.message


@pytest.mark.parametrize(
    ("seen", "why"), FAILED, ids=lambda v: v if isinstance(v, str) else v["kind"]
)
def test_an_object_that_has_failed_is_not_waited_for(seen, why) -> None:
    found = progress(seen)
    assert found.failed
    assert why in found.message


def test_a_service_is_ready_with_one_ready_endpoint() -> None:
    service = obj("Service", "v1", {"clusterIP": "10.0.0.1", "selector": {"app": "x"}})
    unready = {"endpoints": [{"conditions": {"ready": False}}]}
    ready = {"endpoints": [{"conditions": {"ready": True}}]}
    assert not progress(service, Surroundings(endpoint_slices=[unready])).ready
    assert progress(service, Surroundings(endpoint_slices=[unready, ready])).ready


def test_a_claim_that_binds_with_its_first_pod_is_not_waited_for() -> None:
    claim = obj("PersistentVolumeClaim", "v1", status={"phase": "Pending"})
    late = Surroundings(storage_class={"volumeBindingMode": "WaitForFirstConsumer"})
    assert progress(claim, late).ready


def test_a_condition_can_be_waited_for_by_name() -> None:
    seen = obj(
        "Tenancy", "x/v1", status={"conditions": [condition("Ready", "False", "QuotaMissing")]}
    )
    assert "QuotaMissing" in custom(seen, "condition=Ready").message
    assert custom(seen, "condition=Ready=False").ready


@pytest.mark.parametrize(
    ("call", "text", "expected"), [(5, "9", 5), (0, "9", 9), (0, "", 600), (0, "x", 600)]
)
def test_the_wait_is_as_long_as_the_resource_says(call, text, expected) -> None:
    annotations = {"pulumi.com/timeoutSeconds": text}
    assert timeout_seconds(call, {"metadata": {"annotations": annotations}}) == expected


def test_a_namespace_says_what_keeps_it() -> None:
    held = condition(
        "NamespaceFinalizersRemaining", message="finalizers remaining: x in 1 resource"
    )
    seen = obj("Namespace", "v1", status={"conditions": [held]}, finalizers=["y"])
    assert what_holds(seen) == "finalizers remaining: x in 1 resource"
    assert "finalizers y" in what_holds(obj("ConfigMap", "v1", finalizers=["y"]))
