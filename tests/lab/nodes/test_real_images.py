"""Images on a real node whose registry is ours: what stands for others, digests, programs of proofs."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.proof import manifests, model
from lab import images
from lab.nodes.loading import BLOBS
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import CHARTS, REAL_NODE, RealLab, own_cluster

pytestmark = REAL_NODE

ROOT = CHARTS.parents[1]
NAME = "real-01"
INSTALLED = ("csi-driver-nfs", "gpu-operator", "kata-deploy", "kube-prometheus-stack")
DIGEST = "sha256:" + "0" * 64
ALIAS = f"lab.example.com/pytorch@{DIGEST}"
SAYS = "stand-in image: busybox alone"


@pytest.fixture(scope="module")
def lab(tools_at_hand: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealLab]:
    """A node of two GPUs."""
    devices = {NAME: {"/dev/nvidia0": (240, 0), "/dev/nvidia1": (240, 1)}}
    archives = (images.stand_in(print).archive, images.python(print).archive)
    with own_cluster(
        tmp_path_factory.mktemp("lab"),
        [NAME],
        archives=archives,
        devices=devices,
        aliases={ALIAS: images.PYTHON},
    ) as made:
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


def test_a_program_of_a_proof_runs_by_the_digest_of_its_image(lab: RealLab) -> None:
    text = (ROOT / "gpuclusters/proof/scripts/matmul.py").read_text()
    programs = manifests.programs("default", {"matmul.py": text})
    lab.kubectl("create", "-f", "-", given=json.dumps(programs))
    container: dict[str, Any] = {
        "image": ALIAS,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", f"{model.FOLDER}/matmul.py", "--size", "8192"],
        "volumeMounts": [
            {"name": "programs", "mountPath": model.FOLDER},
            *({"name": f"gpu{one}", "mountPath": f"/dev/nvidia{one}"} for one in (0, 1)),
        ],
    }
    # As a device plugin and CDI would give them.
    gpus = [{"name": f"gpu{one}", "hostPath": {"path": f"/dev/nvidia{one}"}} for one in (0, 1)]
    mounted = {"name": "programs", "configMap": {"name": programs["metadata"]["name"]}}
    imports = "import caas, gpuclusters.lease.board, lab.pods.rootless, kubernetes, torch"
    lab.pod(
        "default", "proof", "", container=container, restartPolicy="Never",
        volumes=[mounted, *gpus],
    )  # fmt: skip
    lab.pod(
        "default", "imports", "", restartPolicy="Never",
        container={"image": images.PYTHON, "command": ["python3", "-c", imports]},
    )  # fmt: skip

    def phase(name: str) -> str:
        return str(lab.found("default", name)["status"]["phase"])

    eventually(lambda: phase("proof") == "Succeeded", "the proof has run")
    eventually(lambda: lab.logs("default", "proof").count("\n") >= 2, "its log is there")
    *before, line = lab.logs("default", "proof").splitlines()
    assert before == ["stand-in: 2 GPUs without a driver; this is measured on the processor"]
    said = json.loads(line)
    assert said["cpu"]
    assert [(one["uuid"], one["name"]) for one in said["devices"]] == [
        ("cpu-0", "cpu"),
        ("cpu-1", "cpu"),
    ]
    events = ("get", "events", "--field-selector=involvedObject.name=proof")
    # A kubelet tells what happened after it has told what is.
    eventually(lambda: "already present" in lab.says(*events), "it did not have to be pulled")
    assert "Pulling" not in lab.kubectl(*events)
    # Everything else is there; PyTorch is not, and that is what the program says.
    eventually(lambda: phase("imports") == "Failed", "the other program has ended")
    eventually(
        lambda: "No module named 'torch'" in lab.logs("default", "imports"),
        "it says what it misses",
    )
