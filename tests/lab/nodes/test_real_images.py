"""Images on a real node whose registry is ours: what stands for others, and digests."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator

import pytest

from lab import images
from lab.nodes.loading import BLOBS
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import CHARTS, REAL_NODE, RealLab, own_cluster

pytestmark = REAL_NODE

INSTALLED = ("csi-driver-nfs", "gpu-operator", "kata-deploy", "kube-prometheus-stack")
SAYS = "stand-in image: busybox alone"


@pytest.fixture(scope="module")
def lab(tools_at_hand: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealLab]:
    archives = [images.stand_in(print).archive]
    with own_cluster(tmp_path_factory.mktemp("lab"), ["real-01"], archives=archives) as made:
        yield made


def install(lab: RealLab, release: str, chart: str, *more: str) -> None:
    """Install one of the lab's charts in a namespace of its own; waits for its hooks."""
    folder = str(CHARTS / chart)
    lab.cluster.run(
        "helm", "install", release, folder, f"--namespace={release}", "--create-namespace", *more
    )


def all_ready(lab: RealLab, namespace: str) -> bool:
    """Whether each Deployment and DaemonSet has a pod that is ready."""
    found = json.loads(
        lab.kubectl("get", "deployments,daemonsets", f"--namespace={namespace}", "--output=json")
    )["items"]
    assert found
    states = [one.get("status", {}) for one in found]
    return all(state.get("readyReplicas") or state.get("numberReady") for state in states)


def test_a_node_has_its_images_without_a_copy_of_them(lab: RealLab) -> None:
    root = lab.folder / lab.names[0] / "var-lib" / "containerd"
    blobs = [*(root / BLOBS).iterdir()]
    assert blobs
    # The store and this node have one file.
    assert all(blob.stat().st_nlink > 1 for blob in blobs)


def test_pods_of_the_labs_charts_become_ready_and_their_jobs_end(lab: RealLab) -> None:
    for chart in INSTALLED:
        install(lab, chart, chart)
    for chart in INSTALLED:
        eventually(functools.partial(all_ready, lab, chart), f"{chart} is ready")
    logs = ("logs", "daemonset/kata-deploy", "--namespace=kata-deploy")
    eventually(lambda: "asked to run: install" in lab.says(*logs), "it says what it was to do")
    assert SAYS in lab.says(*logs)
    # Jobs of a chart end.
    suffix = ("--set", "deploymentMode=job", "--set", "env.multiInstallSuffix=b")
    install(lab, "kata-job", "kata-deploy", *suffix, "--timeout=300s")
    lab.cluster.run("helm", "uninstall", "kata-job", "--namespace=kata-job", "--timeout=300s")


def test_any_image_of_a_tenant_runs_and_says_what_it_is(lab: RealLab) -> None:
    container = {
        "image": "registry.example.com/acme/train:2026-11",
        "imagePullPolicy": "Always",
        "command": None,
        "args": ["--epochs", "3"],
    }
    lab.pod("default", "tenant", "", container=container, terminationGracePeriodSeconds=3000)
    lab.ready("default", "tenant")
    eventually(lambda: lab.logs("default", "tenant").count("\n") >= 2, "it says what it is")
    first, second = lab.logs("default", "tenant").splitlines()
    assert first.startswith(SAYS)
    assert second == "asked to run: --epochs 3"
    assert lab.run_in("default", "tenant", "busybox", "uname").returncode == 0
    # Far sooner than it has to: it ends when it is told to.
    lab.kubectl("delete", "pod", "tenant", "--timeout=280s")


def test_a_digest_that_nobody_has_is_not_stood_for(lab: RealLab) -> None:
    other = f"lab.example.com/other@sha256:{'1' * 64}"
    lab.pod("default", "digest", "", container={"image": other, "imagePullPolicy": "IfNotPresent"})

    def refused() -> str:
        status = lab.found("default", "digest")["status"]
        waiting = (status.get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {})
        return str(waiting.get("message", ""))

    eventually(lambda: f"{other}: not found" in refused(), "the pull is refused")
    lab.kubectl("delete", "pod", "digest", "--wait=false")
