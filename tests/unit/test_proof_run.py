"""A ladder of proofs from below: what runs where, what stops it, what it leaves, when it is run again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from gpuclusters.domain import gpu_products, proof_jobs, proof_kept, proof_run
from gpuclusters.domain.gpu_operator import CLUSTER_POLICY, EVENT
from gpuclusters.domain.ports import ObjectKind
from gpuclusters.domain.proof import Outcome
from gpuclusters.domain.proof_inputs import ProofInputs, cuda_of_driver
from gpuclusters.domain.proof_jobs import CONFIG_MAP, JOB, LABEL
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.tenancy_objects import NAMESPACE, NODE, POD
from tests.unit.test_proof_logs import A100, ROW, TAIL, diag, line, product

IMAGE = "registry.example.com/proof@sha256:" + "a" * 64
DCGM = "nvcr.io/nvidia/cloud-native/dcgm@sha256:" + "d" * 64
TEXTS = {"matmul.py": "print()", "diagnostics.sh": "#", "load.sh": "#"}
AT = "2026-11-22T02:00:00Z"
LOGS = {
    "matmul": line({}, {}),
    "diagnostics": diag(("memory", ["Pass", "Pass"], "Pass")),
    "load": "tensor load done",
    "burn": "GPU 0: OK\nGPU 1: OK\n",
    "collective": ROW.format(size=8, count=2, bw=376.4, wrong=0) + TAIL.format(bad=0, word="OK"),
}


@dataclass
class Clock:
    time: float = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass
class Journal:
    lines: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        self.lines.append(line)


@dataclass
class FakeCluster:
    """Nodes with an operator; every Job ends at once with the log of its test."""

    nodes: tuple[str, ...] = ("n0",)
    driver: str = "580.173.02"
    gpus: str = "2"
    logs: dict[str, str] = field(default_factory=lambda: dict(LOGS))
    exit_codes: dict[str, int] = field(default_factory=dict)
    tensor: str = "0.93"
    engine: bool = True
    stuck: dict[str, Any] | None = None
    """Status of pods that never run."""
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    made: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        return "API server https://x"

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        if kind == NODE:
            return next(
                (node for node in self.list(NODE) if node["metadata"]["name"] == name), None
            )
        if kind == NAMESPACE:
            return self.namespaces.get(name)
        return self.objects.get((kind.kind, name))

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[dict[str, Any]]:
        if kind == NODE:
            labels = {
                "nvidia.com/gpu.present": "true",
                "nvidia.com/cuda.driver-version.full": self.driver,
            }
            offered = {"allocatable": {"nvidia.com/gpu": self.gpus}}
            return [
                {"metadata": {"name": n, "labels": labels}, "status": offered} for n in self.nodes
            ]
        if kind == CLUSTER_POLICY:
            ready = {"type": "Ready", "status": "True", "reason": "Reconciled"}
            return [{"metadata": {"name": "p"}, "status": {"conditions": [ready]}}]
        if kind == POD and namespace == "gpu-operator":
            return [pod for node in self.nodes for pod in self._operands(node)]
        if kind == POD:
            return [self._pod(job) for (k, _), job in self.objects.items() if k == "Job"]
        return [o for (k, _), o in self.objects.items() if k == kind.kind and kind != EVENT]

    def create(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        made = json.loads(json.dumps(body))
        self.made.append(made)
        if kind == NAMESPACE:
            self.namespaces[made["metadata"]["name"]] = made
            return dict(made)
        assert made["metadata"]["namespace"] in self.namespaces
        if kind == JOB and self.stuck is None:
            test = made["metadata"]["labels"][LABEL]
            done = "Failed" if self.exit_codes.get(test) else "Complete"
            made["status"] = {"conditions": [{"type": done, "status": "True"}]}
        self.objects[kind.kind, made["metadata"]["name"]] = made
        return dict(made)

    def remove(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        if kind == NAMESPACE:
            self.namespaces.pop(name, None)
        self.objects.pop((kind.kind, name), None)

    def log(self, namespace: str, pod: str, container: str) -> str:
        return self.logs[self.objects["Job", pod.removesuffix("-x")]["metadata"]["labels"][LABEL]]

    def ask(
        self, namespace: str, service: str, port: int, path: str, query: Mapping[str, str]
    ) -> dict[str, Any]:
        self.asked.append(f"{namespace}/{service}:{port}/{path}?{query['query']}")
        series = [
            {"metric": {"pod": f"dcgm-{node}", "UUID": f"GPU-{n}"}, "value": [0, self.tensor]}
            for node in self.nodes
            for n in range(2)
        ]
        return {"data": {"result": series}}

    def apply(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError("a proof applies nothing")

    def delete(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        raise AssertionError("a proof removes with what is owned")

    def try_pod(self, namespace: str, body: Mapping[str, Any]) -> str | None:
        raise AssertionError("a proof tries no pod")

    def jobs(self) -> dict[str, dict[str, Any]]:
        return {b["metadata"]["name"]: b for b in self.made if b["kind"] == "Job"}

    def _operands(self, node: str) -> Sequence[dict[str, Any]]:
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.42.0.7"}
        ready["containerStatuses"] = [{"name": "c", "ready": True, "imageID": DCGM}]
        apps = ["nvidia-operator-validator", *(["nvidia-dcgm"] if self.engine else [])]
        pods = {f"{app}-{node}": app for app in apps} | {f"dcgm-{node}": "nvidia-dcgm-exporter"}
        return [
            {
                "metadata": {"name": n, "labels": {"app": app}},
                "spec": {"nodeName": node},
                "status": ready,
            }
            for n, app in pods.items()
        ]

    def _pod(self, job: dict[str, Any]) -> dict[str, Any]:
        name, test = job["metadata"]["name"], job["metadata"]["labels"][LABEL]
        over = {"terminated": {"exitCode": self.exit_codes.get(test, 0), "reason": "Error"}}
        status = {"phase": "Succeeded", "containerStatuses": [{"name": "proof", "state": over}]}
        owner = {"kind": "Job", "name": name}
        return {
            "metadata": {"name": f"{name}-x", "ownerReferences": [owner]},
            "spec": {},
            "status": self.stuck or status,
        }


def inputs(level: str = "L4", **changes: Any) -> ProofInputs:
    given: dict[str, Any] = {
        "cluster": "prod",
        "kubeconfig": "secret",
        "level": level,
        "nodes": [
            {"name": "n0", "resources": {"nvidia.com/gpu": 2}, "product": product(A100)},
        ],
        "matmul": {"image": IMAGE, "cuda_major": 12},
        "diagnostics": {},
        "load": {"image": IMAGE, "cuda_major": 12},
        "burn": {"image": IMAGE},
        "collective": {"image": IMAGE, "floor_gb_per_second": 300},
        "prometheus": {"namespace": "monitoring"},
        "driver": "580.173.02",
    }
    return ProofInputs.model_validate(given | changes)


def run(
    cluster: FakeCluster, wanted: ProofInputs, journal: Journal | None = None
) -> proof_run.Result:
    return proof_run.run(wanted, cluster, Clock(), journal or Journal(), TEXTS)


def outcomes(result: proof_run.Result) -> list[tuple[str, str, str]]:
    return [(check.level, check.what, check.outcome.value) for check in result.checks]


def test_the_whole_ladder_is_climbed_and_taken_away_again() -> None:
    cluster = FakeCluster()
    result = run(cluster, inputs())
    assert result.proven, result.checks
    assert [check.level for check in result.checks] == [
        "L0", "L1", "L1", "L1", "L2", "L2", "L3", "L3", "L4",
    ]  # fmt: skip
    assert cluster.objects == {}
    assert cluster.namespaces == {}
    assert cluster.asked[0].startswith(
        "monitoring/prometheus-operated:9090/api/v1/query?max by (pod"
    )
    assert result.remarks == (
        "All-reduce ran on each node by itself; the network between nodes was not tried.",
    )
    assert result.observed == {"n0": {"driver": "580.173.02", "nvidia.com/gpu": "2"}}


def test_a_job_fits_a_restricted_namespace_and_waits_for_its_node_through_the_scheduler() -> None:
    cluster = FakeCluster()
    run(cluster, inputs(tolerations=["team"]))
    assert len(cluster.jobs()) == 5
    space = cluster.made[0]
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for job in cluster.jobs().values():
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        assert spec["backoffLimit"] == 0
        assert spec["activeDeadlineSeconds"] > 0
        assert pod["restartPolicy"] == "Never"
        assert "runtimeClassName" not in pod
        assert "hostUsers" not in pod
        assert "nodeName" not in pod
        terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (field_,) = terms["nodeSelectorTerms"][0]["matchFields"]
        assert field_["values"] == ["n0"]
        assert [t["key"] for t in pod["tolerations"]] == ["nvidia.com/gpu", "team"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
        assert "@sha256:" in container["image"]
        assert not any("hostPath" in volume for volume in pod["volumes"])


def test_diagnostics_are_a_client_of_the_nodes_own_engine_in_its_own_image() -> None:
    cluster = FakeCluster()
    run(cluster, inputs("L2"))
    (job,) = [j for name, j in cluster.jobs().items() if "diagnostics" in name]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == DCGM
    assert container["command"] == ["sh", "/proof/diagnostics.sh", "10.42.0.7:5555", "2"]
    without = FakeCluster(engine=False)
    result = run(without, inputs("L2"))
    assert not result.proven
    (check,) = [
        check
        for check in result.checks
        if check.outcome is Outcome.NOT_TRIED and check.subject == "n0"
    ]
    assert "dcgm.enabled: true" in check.said


@pytest.mark.parametrize(
    ("changes", "failed", "after"),
    [
        ({"gpus": "1"}, "the operator is reconciled and every node offers its GPUs", []),
        (
            {"logs": LOGS | {"matmul": line({}, {"tflops": 3.0})}},
            "multiplies matrices",
            ["diagnostics", "load", "burn", "collective"],
        ),
        (
            {"logs": LOGS | {"diagnostics": diag(("pcie", ["Fail"], "Fail"))}},
            "passes DCGM's diagnostics: Hardware/pcie",
            ["load", "burn", "collective"],
        ),
        ({"tensor": "0.2"}, "is seen under load by Prometheus", ["burn", "collective"]),
        ({"exit_codes": {"load": 1}}, "runs load", ["burn", "collective"]),
        (
            {"logs": LOGS | {"burn": "GPU 0: OK\nGPU 1: FAULTY\n"}},
            "stands a burn-in",
            ["collective"],
        ),
        ({"exit_codes": {"collective": 1}}, "reduces over all GPUs of the node", []),
    ],
)
def test_a_step_that_does_not_hold_ends_the_climb(
    changes: dict[str, Any], failed: str, after: list[str]
) -> None:
    cluster = FakeCluster(**changes)
    result = run(cluster, inputs())
    assert not result.proven
    assert [what for _, what, outcome in outcomes(result) if outcome == "failed"] == [failed]
    not_tried = [what for _, what, outcome in outcomes(result) if outcome == "not-tried"]
    assert not_tried == [f"runs {test}" for test in after]
    assert cluster.objects == {}


def test_what_a_job_waits_for_is_told_and_is_the_reason_when_its_time_is_over() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image: not found"}
    cluster = FakeCluster(
        stuck={
            "phase": "Pending",
            "containerStatuses": [{"name": "proof", "image": IMAGE, "state": {"waiting": waiting}}],
        }
    )
    journal = Journal()
    result = run(cluster, inputs("L1"), journal)
    failed = result.checks[-1]
    assert failed.outcome is Outcome.FAILED
    assert failed.said.startswith("not over after 600 s: pod proof-matmul-n0-")
    assert "ImagePullBackOff: Back-off pulling image: not found" in failed.said
    (told,) = journal.lines
    assert "proof on n0 waits: pod proof-matmul-n0-" in told


def test_the_whole_proof_has_an_end_too() -> None:
    cluster = FakeCluster(stuck={"phase": "Pending"})
    result = run(cluster, inputs("L1", timeout_seconds=60))
    assert result.checks[-1].said.startswith("not over after 60 s")

    class Slow(Clock):
        def now(self) -> float:
            self.time += 25
            return self.time

    late = proof_run.run(inputs(timeout_seconds=60), FakeCluster(), Slow(), Journal(), TEXTS)
    assert late.checks[-1].outcome is Outcome.NOT_TRIED
    assert late.checks[-1].said == "the 60 s for the whole proof are over"
    assert not late.proven


def test_cut_and_shared_gpus_are_asked_for_as_what_they_are() -> None:
    nodes = [
        {"name": "cut", "resources": {"nvidia.com/mig-1g.10gb": 14}, "mig": True},
        {"name": "shared", "resources": {"nvidia.com/gpu.shared": 8}, "shared": True},
        {"name": "one", "resources": {"nvidia.com/gpu": 1}},
    ]
    wanted = inputs(nodes=nodes)
    limits = {
        node.name: proof_jobs.job(
            wanted, proof_jobs.Trial.MATMUL, node, config_map="c", image=IMAGE
        )["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        for node in wanted.nodes
    }
    assert limits == {
        "cut": {"nvidia.com/mig-1g.10gb": "14"},
        "shared": {"nvidia.com/gpu.shared": "1"},
        "one": {"nvidia.com/gpu": "1"},
    }
    applies = {
        (trial.value, node.name)
        for trial in wanted.tests
        for node in wanted.nodes
        if proof_jobs.concerns(trial, node)
    }
    assert applies == {
        ("matmul", "cut"),
        ("matmul", "shared"),
        ("matmul", "one"),
        ("diagnostics", "one"),
        ("load", "one"),
        ("burn", "one"),
    }


def test_names_of_jobs_are_short_and_of_one_node_each() -> None:
    long = "gpu-node-" + "a" * 60
    names = {
        proof_jobs.name(proof_jobs.Trial.DIAGNOSTICS, node)
        for node in (long + ".x", long + ".y", "n")
    }
    assert len(names) == 3
    assert all(len(name) <= 63 for name in names)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"matmul": None}, "matmul: level L4 needs it; give it an image with PyTorch"),
        (
            {"matmul": {"image": "nvcr.io/nvidia/pytorch:26.01-py3", "cuda_major": 12}},
            "by its digest",
        ),
        ({"level": "L3", "burn": None}, "burn: level L3 needs it; give it one that you built"),
        (
            {"driver": "535.309.01", "matmul": {"image": IMAGE, "cuda_major": 13}},
            "driver 535.309.01 runs images up to CUDA 12",
        ),
        ({"simulated": True}, "L4 cannot be shown by simulated GPUs"),
        ({"nodes": []}, "nodes: there is none to prove"),
        (
            {"nodes": [{"name": "a", "resources": {"nvidia.com/gpu": 1}}] * 2},
            "nodes: a is named twice",
        ),
        (
            {"nodes": [{"name": "a", "resources": {"nvidia.com/gpu": 1}, "product": "x"}]},
            "unknown product 'x'",
        ),
    ],
)
def test_what_cannot_be_proven_is_refused_before_anything_runs(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match="Value error") as refused:
        inputs(**changes)
    assert said in str(refused.value)


def test_a_v100_gets_no_image_that_does_not_know_it() -> None:
    v100 = next(n for n in gpu_products.names() if n.startswith("v100"))
    node = {"name": "old", "resources": {"nvidia.com/gpu": 1}, "product": v100}
    with pytest.raises(ValidationError, match=f"does not know the {v100} of old"):
        inputs("L1", nodes=[node], matmul={"image": IMAGE, "cuda_major": 13})
    assert inputs("L1", nodes=[node]).tests


def test_the_burn_in_may_be_left_out_of_the_highest_level_and_that_is_said() -> None:
    result = run(FakeCluster(), inputs(burn=None))
    assert result.proven
    assert "The burn-in of L3 was not run: no image with gpu_burn is given." in result.remarks


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("580.173.02", 13), ("595", 13), ("570.1", 12), ("470.2", 11), ("next", None)],
)
def test_a_driver_runs_images_up_to_a_version_of_cuda(driver: str, cuda: int | None) -> None:
    assert cuda_of_driver(driver) == cuda


# Kept in a state


def kept(
    cluster: FakeCluster, wanted: ProofInputs, before: Mapping[str, Any] = {}
) -> dict[str, Any]:
    return proof_kept.ensure(wanted, before, cluster, Clock(), Journal(), TEXTS, AT)


def test_a_proof_is_run_again_only_when_something_that_matters_has_changed() -> None:
    cluster = FakeCluster()
    first = kept(cluster, inputs())
    assert first["proven"] is True
    assert len(first["evidence_sha256"]) == 64
    jobs = len(cluster.made)
    assert kept(cluster, inputs(kubeconfig="renewed", timeout_seconds=9), first) == first
    assert len(cluster.made) == jobs, "another kubeconfig is no other cluster"
    for changes in ({"driver": "580.200.01"}, {"operator": "v26.7.0"}, {"programs": "f" * 64}):
        assert kept(cluster, inputs(**changes), first)["fingerprint"] != first["fingerprint"]
        assert len(cluster.made) > jobs
        jobs = len(cluster.made)


def test_another_driver_on_a_node_makes_a_proof_stale_and_it_is_run_again() -> None:
    cluster = FakeCluster()
    first = kept(cluster, inputs())
    assert proof_kept.observe(inputs(), first, cluster) == first
    cluster.driver = "595.91.07"
    seen = proof_kept.observe(inputs(), first, cluster)
    assert seen["stale"] == ["n0: driver was 580.173.02, is 595.91.07"]
    again = kept(cluster, inputs(), seen)
    assert again["stale"] == []
    assert again["observed"]["n0"]["driver"] == "595.91.07"


def test_a_proof_that_does_not_hold_names_every_check_that_failed() -> None:
    cluster = FakeCluster(logs=LOGS | {"matmul": line({"differ": 7}, {"tflops": 3.0})})
    with pytest.raises(RefusalError) as refused:
        kept(cluster, inputs("L1"))
    text = str(refused.value)
    assert "proof L1 does not hold" in text
    assert "n0 GPU-0: multiplies matrices: failed (the same product came out differently" in text
    assert "n0 GPU-1: multiplies matrices: failed (too slow" in text
    assert "secret" not in text
    assert cluster.objects == {}


def test_only_the_config_map_of_this_proof_is_mounted() -> None:
    one = proof_jobs.programs(inputs(), TEXTS)
    other = proof_jobs.programs(inputs(), TEXTS | {"matmul.py": "print(1)"})
    assert one["metadata"]["name"] != other["metadata"]["name"]
    assert CONFIG_MAP.kind == one["kind"]
