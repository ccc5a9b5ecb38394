"""Runs a ladder of proofs from below, and stops at the first step that does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.gpu_operator import readiness
from gpuclusters.gpu_operator.readiness import read
from gpuclusters.proof import checks as proof
from gpuclusters.proof import jobs as proof_jobs
from gpuclusters.proof import load as proof_stress
from gpuclusters.proof import verdict
from gpuclusters.proof.checks import LEVEL_OF, Check, Level, Outcome, ProofTest
from gpuclusters.proof.jobs import JOB
from gpuclusters.proof.model import ProofInputs, ProofNode
from gpuclusters.proof.namespace import JobCluster, temporary_namespace
from gpuclusters.proof.wait import POLL_SECONDS, Ended, wait
from gpuclusters.tenancy.objects import NODE, POD

SCRAPE_SECONDS = 90.0
"""Within this a load must have been scraped; by default Prometheus asks every 15 to 60 seconds."""
DCGM_APP = "nvidia-dcgm"
_DRIVER = ("nvidia.com/cuda.driver-version.full", "nvidia.com/cuda.driver.major")


@dataclass(frozen=True, slots=True)
class ProofResult:
    """What a run found."""

    checks: tuple[Check, ...]
    remarks: tuple[str, ...]
    observed: Mapping[str, Mapping[str, str]]
    """Driver and resources of each node as they were; a difference later makes the proof stale."""

    @property
    def proven(self) -> bool:
        """Whether all of it holds."""
        return proof.proven(self.checks)


@dataclass(slots=True)
class _Run:
    inputs: ProofInputs
    cluster: JobCluster
    clock: Clock
    reporter: Reporter
    texts: Mapping[str, str]
    started: float
    checks: list[Check] = field(default_factory=list)

    @property
    def left_seconds(self) -> float:
        """Of the time for all tests together."""
        return self.inputs.timeout_seconds - (self.clock.now() - self.started)


def run(
    inputs: ProofInputs,
    cluster: JobCluster,
    clock: Clock,
    reporter: Reporter,
    texts: Mapping[str, str],
) -> ProofResult:
    """Climb to the level that is asked for.

    Whatever is made is removed again, also what a run left that was killed.

    Args:
        inputs: what is to be shown.
        cluster: where.
        clock: to wait by.
        reporter: told what is waited for.
        texts: the programs of gpuclusters/proof/scripts, by file name.

    Raises:
        AdapterError: the cluster is not reached, or refuses.
    """
    one = _Run(inputs, cluster, clock, reporter, texts, clock.now())
    one.checks += _offered(inputs, cluster)
    observed = observe(inputs, cluster)
    if inputs.tests and proof.proven(one.checks):
        _climb(one)
    return ProofResult(tuple(one.checks), tuple(verdict.remarks(inputs)), observed)


def observe(inputs: ProofInputs, cluster: JobCluster) -> Mapping[str, Mapping[str, str]]:
    """Driver and resources of each node now."""
    found = {}
    for node in inputs.nodes:
        body = cluster.get(NODE, node.name) or {}
        labels = (body.get("metadata") or {}).get("labels") or {}
        offered = (body.get("status") or {}).get("allocatable") or {}
        driver = next((str(labels[key]) for key in _DRIVER if key in labels), "")
        resources = {name: str(offered.get(name, "0")) for name in sorted(node.resources)}
        found[node.name] = {"driver": driver, **resources}
    return found


def _offered(inputs: ProofInputs, cluster: JobCluster) -> Iterator[Check]:
    """L0: what the gate before this one looked at too, as of now."""
    expected = {node.name: node.resources for node in inputs.nodes}
    waits = readiness.missing(read(cluster, inputs.operator_namespace), expected)
    what = "the operator is reconciled and every node offers its GPUs"
    for wanted in waits:
        yield Check(Level.L0, "cluster", what, Outcome.FAILED, wanted.problem)
    if not waits:
        total = sum(sum(node.resources.values()) for node in inputs.nodes)
        said = f"{total} devices on {len(inputs.nodes)} nodes"
        yield Check(Level.L0, "cluster", what, Outcome.PASSED, said)


def _climb(one: _Run) -> None:
    with temporary_namespace(one.cluster, one.inputs.namespace, one.texts) as config_map:
        for test in one.inputs.tests:
            if one.left_seconds <= 0:
                said = f"the {one.inputs.timeout_seconds} s for the whole proof are over"
                _not_reached(one, said, test)
                return
            _step(one, test, config_map)
            if not proof.proven(one.checks):
                _not_reached(one, f"{test.value} did not pass", *_after(one, test)[:1])
                return


def _step(one: _Run, test: ProofTest, config_map: str) -> None:
    nodes = [node for node in one.inputs.nodes if proof_jobs.concerns(test, node)]
    jobs: dict[str, str] = {}
    space = one.inputs.namespace
    part = one.inputs.test(test)
    try:
        for node in nodes:
            body = _job(one, test, node, config_map)
            if body is not None:
                jobs[node.name] = proof_jobs.name(test, node.name)
                one.cluster.create(JOB, body)
        ended = wait(
            one.cluster,
            space,
            jobs,
            timeout_seconds=min(getattr(part, "timeout_seconds", 0.0), one.left_seconds),
            clock=one.clock,
            reporter=one.reporter,
        )
        seen = _seen(one, ended) if test is ProofTest.LOAD and _all_ended(ended) else {}
    finally:
        for job in jobs.values():
            one.cluster.remove(JOB, job, space)
    for node in nodes:
        if node.name in ended:
            one.checks += verdict.judge(one.inputs, test, node, ended[node.name], seen)


def _job(one: _Run, test: ProofTest, node: ProofNode, config_map: str) -> dict[str, Any] | None:
    """The Job of one node; None, and a check that failed, where it cannot even be written down."""
    image = getattr(one.inputs.test(test), "image", None)
    host = ""
    if test is ProofTest.DIAGNOSTICS:
        engine = _engine(one, node.name)
        address = str((engine.get("status") or {}).get("podIP", "")) if engine else ""
        image = image or (_pinned(engine) if engine else None)
        if not address or image is None:
            said = (
                f"no pod of {DCGM_APP} with an address and an image by digest runs on it; set the operator's "
                "value dcgm.enabled: true, or give diagnostics an image"
            )
            what = "passes DCGM's diagnostics"
            one.checks.append(Check(Level.L2, node.name, what, Outcome.NOT_TRIED, said))
            return None
        host = f"{address}:{proof_jobs.DCGM_PORT}"
    return proof_jobs.job(
        one.inputs, test, node, config_map=config_map, image=str(image), host=host
    )


def _engine(one: _Run, node: str) -> Mapping[str, Any] | None:
    for pod in one.cluster.list(POD, one.inputs.operator_namespace):
        labels = pod["metadata"].get("labels") or {}
        if labels.get("app") == DCGM_APP and (pod.get("spec") or {}).get("nodeName") == node:
            return pod
    return None


def _pinned(pod: Mapping[str, Any]) -> str | None:
    """The image that a pod runs, as its kubelet names it by digest."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        image = str(status.get("imageID", "")).removeprefix("docker-pullable://")
        if "@sha256:" in image:
            return image
    return None


def _all_ended(ended: Mapping[str, Ended]) -> bool:
    return all(one.exit_code == 0 for one in ended.values())


def _seen(one: _Run, ended: Mapping[str, Ended]) -> Mapping[str, Mapping[str, float]]:
    """What Prometheus saw of the load; asked until every GPU is there, for the time of a few scrapes."""
    target, load = one.inputs.prometheus, one.inputs.load
    if target is None or load is None:
        return {}
    pods = one.cluster.list(POD, one.inputs.operator_namespace)
    node_of = {str(p["metadata"]["name"]): str(p["spec"].get("nodeName", "")) for p in pods}
    node_of |= {over.pod: node for node, over in ended.items() if over.pod}
    query = proof_stress.tensor_query(load.seconds + int(SCRAPE_SECONDS))
    wanted = {node.name: node.whole_gpus for node in one.inputs.nodes if node.name in ended}
    deadline = one.clock.now() + SCRAPE_SECONDS
    while True:
        answer = one.cluster.ask(
            target.namespace, target.service, target.port, "api/v1/query", {"query": query}
        )
        seen = proof_stress.active(answer, node_of)
        least = load.tensor_active_percent / 100
        busy = {node: sum(v >= least for v in gpus.values()) for node, gpus in seen.items()}
        if all(busy.get(node, 0) >= gpus for node, gpus in wanted.items()):
            return seen
        if one.clock.now() + POLL_SECONDS > deadline:
            return seen
        one.clock.sleep(POLL_SECONDS)


def _after(one: _Run, test: ProofTest) -> Sequence[ProofTest]:
    tests = one.inputs.tests
    return tests[tests.index(test) + 1 :]


def _not_reached(one: _Run, said: str, *first: ProofTest) -> None:
    """From this one on nothing was tried, and that is said."""
    for begin in first:
        for test in (begin, *_after(one, begin)):
            what = f"runs {test.value}"
            one.checks.append(Check(LEVEL_OF[test], "cluster", what, Outcome.NOT_TRIED, said))
