"""GPUs on a real node: our plugin, the kubelet, containerd with our CDI specification, a container's devices.

The GPUs are numbers of devices without a driver, and the virtual machine is emulated with runc; who
gives what to whom is real.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from lab import images, nodes
from lab.nodes.configuration import KATA_STAND_IN_ROOT
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_gpus import IMAGE, RESOURCE, TABLE, RealGpus, fake_devices, real_gpus
from tests.lab.nodes.real_lab import REAL_NODE, real_lab

pytestmark = REAL_NODE


@pytest.fixture(scope="module")
def gpus(kube_api: KubeCluster) -> Iterator[RealGpus]:
    programs = images.caas(f"docker.io/{IMAGE}", print)
    with real_lab(kube_api, 1, devices=fake_devices(), archives=[programs.archive]) as lab:
        namespace = f"test-{lab.token}"
        lab.kubectl("create", "namespace", namespace)
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        with kube_api.api() as api:
            eventually(lambda: api.request("GET", account)[0] == 200, "the default account")
        try:
            with real_gpus(lab, namespace) as made:
                yield made
        finally:
            lab.kubectl("delete", "namespace", namespace, "--wait=false")


def partition_of(*modules: int) -> int:
    """The number of the partition of exactly these modules."""
    return next(p.id for p in TABLE.partitions if set(p.modules) == set(modules))


@pytest.fixture(scope="module")
def pair(gpus: RealGpus) -> str:
    """The pod of a tenant with two GPUs, 1 and 3."""
    gpus.give("pair", partition_of(1, 3))
    gpus.lab.ready(gpus.namespace, "pair")
    return "pair"


def test_a_tenants_container_has_its_gpus_and_no_other(gpus: RealGpus, pair: str) -> None:
    assert {1, 3} <= gpus.allocated()
    assert gpus.vfio(pair) == {"11", "13", "vfio"}
    # No driver has the number: the kernel let the container through to where a driver would answer.
    for mine in ("11", "13", "vfio"):
        assert "No such device or address" in gpus.opens(pair, f"/dev/vfio/{mine}")
    gpus.lab.run_in(gpus.namespace, pair, "mknod", "/tmp/other", "c", "240", "12")
    assert "Operation not permitted" in gpus.opens(pair, "/tmp/other")


def test_the_runtime_class_leads_to_the_handler_that_stands_for_kata(
    gpus: RealGpus, pair: str
) -> None:
    status = gpus.lab.found(gpus.namespace, pair)["status"]["containerStatuses"][0]
    container = status["containerID"].removeprefix("containerd://")
    node = nodes.status(gpus.lab.folder).nodes[gpus.node]
    listed = subprocess.run(
        nodes.command_in(node, ["ls", f"{KATA_STAND_IN_ROOT}/k8s.io"]),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert container in listed.stdout.split()


def test_an_unhealthy_gpu_is_not_offered(gpus: RealGpus) -> None:
    gpus.move(4, "Quarantined", reason="FirmwareChanged")
    gpus.wait_for_offer(8, 7)
    gpus.free(4, cycle=gpus.lease(4)["status"]["cycle"] + 1, recheck="now")
    gpus.wait_for_offer(8, 8)


def test_a_kubelet_and_a_plugin_that_restart_lose_nothing(gpus: RealGpus, pair: str) -> None:
    nodes.control(gpus.lab.folder, gpus.node, "kubelet", "restart")
    eventually(lambda: gpus.vfio(pair) == {"11", "13", "vfio"}, "the kubelet answers again")
    gpus.wait_for_offer(8, 8)
    plugins = ("--selector=app.kubernetes.io/name=gpu-clusters-device-plugin", f"-n={gpus.system}")
    gpus.lab.kubectl("delete", "pod", *plugins, "--grace-period=1")
    # What is said now may still be of the plugin that is gone.
    gpus.wait_for_news()
    gpus.wait_for_offer(8, 8)
    assert {1, 3} <= gpus.allocated()
    gpus.give("next", partition_of(2))
    gpus.lab.ready(gpus.namespace, "next")
    assert gpus.vfio("next") == {"12", "vfio"}
    status = gpus.lab.found(gpus.namespace, pair)["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0


@pytest.mark.parametrize("sandboxed", [True, False])
def test_a_pods_annotation_names_no_device(gpus: RealGpus, sandboxed: bool) -> None:
    name = f"annotated-{sandboxed}".lower()
    annotations = {"cdi.k8s.io/gpu": f"{RESOURCE}=12", "io.katacontainers.config.x": "y"}
    handler = {"runtimeClassName": gpus.runtime_class} if sandboxed else {}
    gpus.lab.pod(
        gpus.namespace, name, "sleep 1000", metadata={"annotations": annotations}, **handler
    )
    gpus.lab.ready(gpus.namespace, name)
    assert gpus.vfio(name) == set()
    gpus.lab.run_in(gpus.namespace, name, "mknod", "/tmp/gpu", "c", "240", "12")
    assert "Operation not permitted" in gpus.opens(name, "/tmp/gpu")


def test_a_pod_without_a_lease_gets_no_gpu(gpus: RealGpus) -> None:
    limits = {"limits": {RESOURCE: "1"}}
    gpus.lab.pod(gpus.namespace, "thief", "sleep 1000", container={"resources": limits})

    def refused() -> bool:
        return gpus.lab.found(gpus.namespace, "thief")["status"]["phase"] == "Failed"

    eventually(refused, "the kubelet refuses it")
    assert gpus.lab.found(gpus.namespace, "thief")["status"]["reason"] == "UnexpectedAdmissionError"
    assert 4 not in gpus.allocated()


def test_the_plugin_runs_with_the_rights_that_we_ship(gpus: RealGpus) -> None:
    plugins = ("--selector=app.kubernetes.io/name=gpu-clusters-device-plugin", f"-n={gpus.system}")
    pods = json.loads(gpus.lab.kubectl("get", "pods", *plugins, "--output=json"))["items"]
    assert [pod["status"]["containerStatuses"][0]["ready"] for pod in pods] == [True]
    for line in gpus.lab.kubectl("logs", *plugins).splitlines():
        assert json.loads(line)["level"] in ("info", "warning"), line


def test_a_third_request_waits_until_an_earlier_is_over(gpus: RealGpus, pair: str) -> None:
    """The last one here, because it ends the pod that others look at."""
    gpus.give("second", partition_of(5, 6, 7, 8))
    gpus.lab.ready(gpus.namespace, "second")
    limits = {"limits": {RESOURCE: "4"}}
    gpus.lab.pod(gpus.namespace, "third", "sleep 1000", container={"resources": limits})

    def waits() -> bool:
        conditions = gpus.lab.found(gpus.namespace, "third")["status"].get("conditions", [])
        return any(f"Insufficient {RESOURCE}" in c.get("message", "") for c in conditions)

    eventually(waits, "the third says what it waits for")
    # Without a lease it would be refused as soon as GPUs become free.
    gpus.lab.kubectl("delete", "pod", "third", f"--namespace={gpus.namespace}")
    gpus.take(pair, partition_of(1, 3))
    gpus.give("again", partition_of(1, 3))
    gpus.lab.ready(gpus.namespace, "again")
    assert gpus.vfio("again") == {"11", "13", "vfio"}
    assert gpus.vfio("second") == {"15", "16", "17", "18", "vfio"}
