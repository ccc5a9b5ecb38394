"""A ladder of proofs from below: what runs where, what stops it, what it leaves, when it is run again."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from gpuclusters.core.finding import Refused
from gpuclusters.proof import manifests
from gpuclusters.proof import run as proof_run
from gpuclusters.proof.checks import Outcome, ProofResult, proven
from gpuclusters.proof.model import ProofInputs, cuda_of_driver
from gpuclusters.proof.resource import ProofRunProvider
from tests.fixtures.tables import beside
from tests.fixtures.waiting import Waiting
from tests.unit.proof.proof_world import (
    A100,
    DCGM,
    IMAGE,
    LOGS,
    TEXTS,
    FakeCluster,
    diag,
    line,
    product,
)

CASES = beside(__file__, "proof_run.yaml")


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
        "driver": "580.178.04",
    }
    return ProofInputs.model_validate(given | changes, by_name=True)


def run(
    cluster: FakeCluster,
    wanted: ProofInputs,
    reporter: Waiting | None = None,
    clock: Waiting | None = None,
) -> ProofResult:
    return proof_run.run(wanted, cluster, clock or Waiting(), reporter or Waiting(), TEXTS)


def limits(job: dict[str, Any]) -> Any:
    """What the container of a Job takes."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return container["resources"]["limits"]


def test_the_whole_ladder_is_climbed_and_taken_away_again() -> None:
    cluster = FakeCluster()
    result = run(cluster, inputs())
    assert proven(result.checks), result.checks
    assert [check.level for check in result.checks] == [
        "L0", "L1", "L1", "L1", "L2", "L2", "L3", "L3", "L4",
    ]  # fmt: skip
    assert cluster.objects == {}
    assert cluster.asked[0].startswith(
        "monitoring/prometheus-operated:9090/api/v1/query?max by (pod"
    )
    assert result.remarks == (
        "All-reduce ran on each node by itself; the network between nodes was not tried.",
    )
    assert result.observed == {"n0": {"driver": "580.178.04", "nvidia.com/gpu": "2"}}
    # The burn-in may be left out, and that is said.
    result = run(FakeCluster(), inputs(burn=None))
    assert proven(result.checks)
    assert "The burn-in of L3 was not run: no image with gpu_burn is given." in result.remarks


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
    assert not proven(result.checks)
    (check,) = [c for c in result.checks if (c.outcome, c.subject) == (Outcome.NOT_TRIED, "n0")]
    assert "dcgm.enabled: true" in check.said


SPOILED = {
    "slow": line({}, {"tflops": 3.0}),
    "no-pcie": diag(("pcie", ["Fail"], "Fail")),
    "faulty": "GPU 0: OK\nGPU 1: FAULTY\n",
}


@pytest.mark.parametrize("step", CASES["steps"], ids=lambda one: one["failed"])
def test_a_step_that_does_not_hold_ends_the_climb(step: dict[str, Any]) -> None:
    logs = LOGS | {test: SPOILED[name] for test, name in step.get("logs", {}).items()}
    cluster = FakeCluster(**step.get("cluster", {}), logs=logs)
    checks = run(cluster, inputs()).checks
    assert not proven(checks)
    assert [check.what for check in checks if check.outcome is Outcome.FAILED] == [step["failed"]]
    left = [check.what for check in checks if check.outcome is Outcome.NOT_TRIED]
    assert left == [f"runs {test}" for test in step["after"]]
    assert cluster.objects == {}


def test_what_a_job_waits_for_is_told_and_is_the_reason_when_its_time_is_over() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image: not found"}
    cluster = FakeCluster(
        stuck={
            "phase": "Pending",
            "containerStatuses": [{"name": "proof", "image": IMAGE, "state": {"waiting": waiting}}],
        }
    )
    reporter = Waiting()
    result = run(cluster, inputs("L1"), reporter)
    failed = result.checks[-1]
    assert failed.outcome is Outcome.FAILED
    assert failed.said.startswith("not over after 600 s: pod proof-matmul-n0-")
    assert "ImagePullBackOff: Back-off pulling image: not found" in failed.said
    assert all("waiting for: proof on n0: pod proof-matmul-n0-" in told for told in reporter.notes)
    assert [told.rpartition(" (")[2] for told in reporter.notes][:2] == [
        "0s of 10m30s)",
        "1m00s of 10m30s)",
    ]


def test_the_whole_proof_has_an_end_too() -> None:
    cluster = FakeCluster(stuck={"phase": "Pending"})
    result = run(cluster, inputs("L1", timeout_seconds=60))
    assert result.checks[-1].said.startswith("not over after 60 s")

    class Slow(Waiting):
        def now(self) -> float:
            self.time += 25
            return self.time

    late = run(FakeCluster(), inputs(timeout_seconds=60), clock=Slow())
    assert late.checks[-1].outcome is Outcome.NOT_TRIED
    assert late.checks[-1].said == "the 60 s for the whole proof are over"
    assert not proven(late.checks)


def test_cut_and_shared_gpus_are_asked_for_as_what_they_are() -> None:
    nodes = [
        {"name": "cut", "resources": {"nvidia.com/mig-1g.10gb": 14}, "mig": True},
        {"name": "shared", "resources": {"nvidia.com/gpu.shared": 8}, "shared": True},
        {"name": "one", "resources": {"nvidia.com/gpu": 1}},
    ]
    wanted = inputs("L1", nodes=nodes)
    asked = [
        limits(manifests.job(wanted, wanted.tests[0], node, config_map="c", image=IMAGE))
        for node in wanted.nodes
    ]
    assert asked == [
        {"nvidia.com/mig-1g.10gb": "14"},
        {"nvidia.com/gpu.shared": "1"},
        {"nvidia.com/gpu": "1"},
    ]
    applies = {
        node.name: [test.name for test in inputs(nodes=nodes).tests if test.concerns(node)]
        for node in wanted.nodes
    }
    whole = ["matmul", "diagnostics", "load", "burn"]
    assert applies == {"cut": ["matmul"], "shared": ["matmul"], "one": whole}


def test_names_are_of_one_node_and_of_one_text_of_the_programs_each() -> None:
    long = "gpu-node-" + "a" * 60
    names = {manifests.job_name("diagnostics", node) for node in (long + ".x", long + ".y", "n")}
    assert len(names) == 3
    assert all(len(name) <= 63 for name in names)
    one, other = (
        manifests.programs("gpu-proof", TEXTS | {"matmul.py": text})["metadata"]["name"]
        for text in ("print()", "print(1)")
    )
    assert one != other


@pytest.mark.parametrize("refused", CASES["refused"], ids=lambda one: one["says"])
def test_what_cannot_be_proven_is_refused_before_anything_runs(refused: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=re.escape(refused["says"])):
        inputs(**refused["inputs"])


def test_a_driver_runs_images_up_to_a_version_of_cuda() -> None:
    drivers = ("580.178.04", "595", "570.1", "470.2", "390.1", "next")
    assert [cuda_of_driver(one) for one in drivers] == [13, 13, 12, 11, None, None]


class Provider(ProofRunProvider):
    """Finds this cluster, and does not wait by the clock of the machine."""

    def __init__(self, fake: FakeCluster) -> None:
        self.fake = fake

    def cluster(self, inputs: Any) -> Any:
        return self.fake

    def show(self, inputs: ProofInputs, cluster: Any, *_: Any) -> ProofResult:
        return run(cluster, inputs)

    def kept(self, wanted: ProofInputs, before: Mapping[str, Any] = {}) -> dict[str, Any]:
        return self.ensure(wanted, dict(before))

    def seen(self, before: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a refresh finds."""
        found = self.observe(inputs(), dict(before))
        assert found is not None
        return found.outputs


def test_a_proof_is_run_again_only_when_something_that_matters_has_changed() -> None:
    cluster = FakeCluster()
    provider = Provider(cluster)
    first = provider.kept(inputs())
    assert first["proven"] is True
    assert len(first["evidence_sha256"]) == 64
    jobs = len(cluster.made)
    assert provider.kept(inputs(kubeconfig="renewed", timeout_seconds=9), first) == first
    assert len(cluster.made) == jobs, "another kubeconfig is no other cluster"
    for changes in ({"driver": "580.200.01"}, {"operator": "v26.7.0"}, {"programs": "f" * 64}):
        assert provider.kept(inputs(**changes), first)["fingerprint"] != first["fingerprint"]
        assert len(cluster.made) > jobs
        jobs = len(cluster.made)

    # Another driver on a node makes it stale.
    assert provider.seen(first) == first
    cluster.driver = "595.91.07"
    seen = provider.seen(first)
    assert seen["stale"] == ["n0: driver was 580.178.04, is 595.91.07"]
    again = provider.kept(inputs(), seen)
    assert again["stale"] == []
    assert again["observed"]["n0"]["driver"] == "595.91.07"


def test_a_proof_that_does_not_hold_names_every_check_that_failed() -> None:
    cluster = FakeCluster(logs=LOGS | {"matmul": line({"differ": 7}, {"tflops": 3.0})})
    with pytest.raises(Refused) as refused:
        Provider(cluster).kept(inputs("L1"))
    text = str(refused.value)
    assert "proof L1 does not hold" in text
    assert "n0 GPU-0: multiplies matrices: failed (the same product came out differently" in text
    assert "n0 GPU-1: multiplies matrices: failed (too slow" in text
    assert "secret" not in text
    assert cluster.objects == {}
