"""What can be done in the cluster of the lab: the stand-ins behave like what they stand for."""

from __future__ import annotations

from typing import Any

import pytest

from lab.control_plane.kube import KubeApi
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.lab


def post(client: KubeApi, path: str, body: dict[str, Any]) -> dict[str, Any]:
    status, answer = client.request("POST", path, body)
    assert status == 201, answer
    return client.get(f"{path}/{body['metadata']['name']}")


def pod_spec(**resources: str) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "any", "resources": {"limits": resources}}]}


def test_a_pod_with_gpus_runs_on_a_node_that_is_ready_and_has_them(
    kube_api: KubeCluster, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with kube_api.api() as client:
        spec = pod_spec(**{"nvidia.com/pgpu": "1"})
        post(client, pods, {"metadata": {"name": "one"}, "spec": spec})
        pod = eventually(lambda: running(client, f"{pods}/one"))
        assert pod["spec"]["nodeName"] in kube_api.nodes
        assert pod["status"]["podIP"].startswith("10.")
        node = client.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")
        conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert node["status"]["allocatable"]["nvidia.com/pgpu"] == "8"
        assert node["metadata"]["labels"]["gpu-clusters.dev/stand-in"] == "kubelet"
        client.delete(f"{pods}/one")
        eventually(lambda: client.request("GET", f"{pods}/one")[0] == 404)


def running(client: KubeApi, path: str) -> dict[str, Any] | None:
    pod = client.get(path)
    return pod if pod["status"]["phase"] == "Running" else None


def test_a_pod_that_asks_for_more_gpus_than_a_node_has_stays_pending(
    kube_api: KubeCluster, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with kube_api.api() as client:
        spec = pod_spec(**{"nvidia.com/pgpu": "9"})
        post(client, pods, {"metadata": {"name": "nine"}, "spec": spec})

        def refusal() -> str:
            conditions = client.get(f"{pods}/nine")["status"].get("conditions", [])
            return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), "")

        assert "Insufficient nvidia.com/pgpu" in eventually(refusal)


def test_init_containers_of_a_pod_that_runs_have_ended_and_sidecars_run(
    kube_api: KubeCluster, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    first = [
        {"name": "once", "image": "any"},
        {"name": "beside", "image": "any", "restartPolicy": "Always"},
    ]
    with kube_api.api() as client:
        spec = {**pod_spec(), "initContainers": first}
        post(client, pods, {"metadata": {"name": "p"}, "spec": spec})
        told = eventually(lambda: running(client, f"{pods}/p"))["status"]["initContainerStatuses"]
    assert [(one["name"], *one["state"], one["ready"]) for one in told] == [
        ("once", "terminated", True),
        ("beside", "running", True),
    ]


def test_workloads_become_available_and_a_job_completes(
    kube_api: KubeCluster, namespace: str
) -> None:
    wanted = {
        "deployments": ("readyReplicas", 1),
        "statefulsets": ("readyReplicas", 1),
        "daemonsets": ("numberReady", len(kube_api.nodes)),
    }
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    with kube_api.api() as client:
        for plural in wanted:
            labels = {"app": plural}
            spec: dict[str, Any] = {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
            }
            path = f"/apis/apps/v1/namespaces/{namespace}/{plural}"
            post(client, path, {"metadata": {"name": "w"}, "spec": spec})
        template = {"spec": {**pod_spec(), "restartPolicy": "Never"}}
        post(client, jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})

        def told(plural: str, field: str) -> int:
            path = f"/apis/apps/v1/namespaces/{namespace}/{plural}/w"
            return int(client.get(path)["status"].get(field, 0))

        # The cluster may have nodes of other tests too.
        eventually(lambda: all(told(one, field) >= n for one, (field, n) in wanted.items()))
        eventually(lambda: client.get(f"{jobs}/j")["status"].get("succeeded") == 1)


def test_a_service_account_token_works_and_has_no_rights(
    kube_api: KubeCluster, namespace: str
) -> None:
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    with kube_api.api() as client:
        status, answer = client.request("POST", account, {"spec": {"expirationSeconds": 600}})
        assert status == 201, answer
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{namespace}:default",
                "resourceAttributes": {"verb": "list", "resource": "secrets"},
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        status, answer = client.request("POST", path, review)
        assert status == 201
        assert b'"allowed":false' in answer
