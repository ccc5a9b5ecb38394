"""Climbs the cluster's rungs, 5 to 9, from below, and stops at the first that does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.finding import Finding, Level
from gpuclusters.domain import known_errors
from gpuclusters.domain.ports import ObjectKind
from gpuclusters.proof import checks as proof
from gpuclusters.proof import (
    ladder,
    ladder_network,
    ladder_nodes,
    ladder_pods,
    pod,
    training,
    training_times,
)
from gpuclusters.proof.checks import Check, Outcome
from gpuclusters.proof.ladder import CheckLevel, failed, passed
from gpuclusters.proof.ladder_inputs import WHOLE, LadderInputs, smoke
from gpuclusters.proof.ladder_pods import SERVICE, STATEFUL_SET
from gpuclusters.proof.namespace import JobCluster, temporary_namespace
from gpuclusters.proof.pod import CONFIG_MAP, JOB
from gpuclusters.proof.run import ProofResult
from gpuclusters.proof.wait import wait
from gpuclusters.tenancy.objects import NODE

CLAIM = ObjectKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
PROGRAMS = (ladder_pods.PROGRAM, training.PROGRAM)
"""Files of gpuclusters/proof/scripts that are mounted."""
PASSED_WORDS = "Test PASSED"
SIMULATED = (
    "The machines are simulated: pods ran as processes of this machine, GPUs calculated nothing, and no "
    "packet left it."
)
POLL_SECONDS = 2.0


@dataclass(slots=True)
class _Climb:
    inputs: LadderInputs
    cluster: JobCluster
    clock: Clock
    reporter: Reporter
    started: float
    checks: list[Check] = field(default_factory=list)

    @property
    def expected(self) -> Mapping[str, int]:
        """GPUs by node."""
        return {node.name: node.gpus for node in self.inputs.nodes}

    def patience(self, own: float) -> float:
        """How long one rung may take: its own bound, or what is left of the whole climb's."""
        left = self.inputs.timeout_seconds - (self.clock.now() - self.started)
        return max(1.0, min(own, left))


def run(
    inputs: LadderInputs,
    cluster: JobCluster,
    clock: Clock,
    reporter: Reporter,
    texts: Mapping[str, str],
    *,
    strict: bool = True,
) -> ProofResult:
    """Climb to the rung that is asked for; whatever is made is removed again.

    Args:
        inputs: what is to be shown.
        cluster: where.
        clock: to wait by.
        reporter: told what is waited for.
        texts: the programs of gpuclusters/proof/scripts, by file name.
        strict: whether a node that nobody configured is a fault. In an `up` that takes a node away it is
            still there: Pulumi deletes last.

    Raises:
        AdapterError: the cluster is not reached, or refuses.
    """
    one = _Climb(inputs, cluster, clock, reporter, clock.now())
    _step(
        one,
        CheckLevel.NODES,
        lambda: _settled(one, _registered if strict else ladder_nodes.registered),
    )
    observed = observe(inputs, cluster)
    if inputs.highest > CheckLevel.NODES and proof.proven(one.checks):
        kinds = (JOB, STATEFUL_SET, SERVICE, CONFIG_MAP)
        with temporary_namespace(cluster, inputs.namespace, texts, kinds) as programs:
            _rest(one, programs)
    return ProofResult(tuple(one.checks), tuple(_remarks(inputs)), observed)


def _registered(snapshot: ladder_nodes.Snapshot, expected: Mapping[str, int]) -> Iterator[Check]:
    yield from ladder_nodes.registered(snapshot, expected)
    yield from ladder_nodes.strangers(snapshot, expected)


def observe(inputs: LadderInputs, cluster: JobCluster) -> Mapping[str, Mapping[str, str]]:
    """Each node as it is: which one it is, its kubelet, what it offers."""
    found = {}
    for node in inputs.nodes:
        body = cluster.get(NODE, node.name) or {}
        status = body.get("status") or {}
        found[node.name] = {
            # A node that joined anew is another one: its GPUs may be too.
            "uid": str((body.get("metadata") or {}).get("uid", "")),
            "kubelet": str((status.get("nodeInfo") or {}).get("kubeletVersion", "")),
            WHOLE: str((status.get("allocatable") or {}).get(WHOLE, "0")),
        }
    return found


def _rest(one: _Climb, programs: str) -> None:
    steps: Mapping[CheckLevel, Callable[[], Sequence[Check]]] = {
        CheckLevel.NETWORK: lambda: _network(one, programs),
        CheckLevel.ALLOCATABLE: lambda: _settled(one, ladder_nodes.allocatable),
        CheckLevel.VECTOR_ADD: lambda: _vector_add(one, programs),
        CheckLevel.TRAINING: lambda: _training(one, programs),
    }
    for rung, look in steps.items():
        if rung > one.inputs.highest or not _step(one, rung, look):
            return


def _step(one: _Climb, rung: CheckLevel, look: Callable[[], Sequence[Check]]) -> bool:
    """One rung; the ones above it are said not to have been tried if it does not hold."""
    found = look()
    one.checks += found
    if proof.proven(found):
        return True
    said = f"rung {rung.value} does not hold"
    one.checks += ladder.above(rung, one.inputs.highest, said)
    return False


def _settled(
    one: _Climb,
    judge: Callable[[ladder_nodes.Snapshot, Mapping[str, int]], Iterator[Check]],
) -> Sequence[Check]:
    """Rungs 5 and 7, which a cluster may need a while for."""
    checks: list[Check] = []

    def look() -> Sequence[Finding]:
        closely = judge is ladder_nodes.allocatable
        snapshot = ladder_nodes.read(one.cluster, one.expected, closely=closely)
        checks[:] = judge(snapshot, one.expected)
        return [
            Finding("gpu.plugin", f"{c.subject}: {c.said}", level=Level.REPAIR)
            for c in checks
            if c.outcome is not Outcome.PASSED
        ]

    poll(
        look,
        target=one.cluster.target,
        timeout_seconds=one.patience(one.inputs.settle_seconds),
        poll_seconds=POLL_SECONDS,
        clock=one.clock,
        reporter=one.reporter,
    )
    return checks


def _network(one: _Climb, programs: str) -> Sequence[Check]:
    space = one.inputs.namespace
    try:
        one.cluster.create(SERVICE, ladder_pods.headless(one.inputs, ladder_pods.REACH))
        one.cluster.create(STATEFUL_SET, ladder_pods.reach_set(one.inputs, programs))
        return ladder_network.watch(
            one.inputs,
            one.cluster,
            one.clock,
            one.reporter,
            one.patience(smoke(one.inputs).timeout_seconds),
        )
    finally:
        one.cluster.remove(STATEFUL_SET, ladder_pods.REACH, space)
        one.cluster.remove(SERVICE, ladder_pods.REACH, space)


def _vector_add(one: _Climb, programs: str) -> Sequence[Check]:
    space, part = one.inputs.namespace, one.inputs.vector_add
    jobs = {
        node.name: pod.job_name(ladder_pods.VECTOR_ADD, node.name)
        for node in one.inputs.hosts_of_pods
    }
    try:
        for node in one.inputs.hosts_of_pods:
            one.cluster.create(JOB, ladder_pods.vector_add(one.inputs, node, programs))
        ended = wait(
            one.cluster,
            space,
            jobs,
            timeout_seconds=one.patience(part.timeout_seconds),
            clock=one.clock,
            reporter=one.reporter,
        )
    finally:
        for job in jobs.values():
            one.cluster.remove(JOB, job, space)
    checks = []
    for node in one.inputs.hosts_of_pods:
        over = ended[node.name]
        if over.exit_code == 0 and PASSED_WORDS in over.log:
            checks.append(passed(CheckLevel.VECTOR_ADD, node.name, PASSED_WORDS))
            continue
        words = " ".join(over.log.split())[-300:]
        said = ": ".join(part for part in (over.said, words) if part)
        way = known_errors.advice("ladder", over.log, over.said)
        quiet = f'it ended well and did not print "{PASSED_WORDS}": {words}'
        checks.append(failed(CheckLevel.VECTOR_ADD, node.name, said if over.said else quiet, way))
    return checks


def _training(one: _Climb, programs: str) -> Sequence[Check]:
    space, part = one.inputs.namespace, one.inputs.training
    if part is None:
        raise ValueError("rung 9 without a training")
    if part.data_claim and one.cluster.get(CLAIM, part.data_claim, space) is None:
        said = f"the namespace {space} has no PersistentVolumeClaim {part.data_claim}"
        way = "make the namespace and the claim with the data, or bake them into the image"
        return [failed(CheckLevel.TRAINING, "cluster", said, way)]
    name = training.NAME
    try:
        one.cluster.create(SERVICE, ladder_pods.headless(one.inputs, name))
        one.cluster.create(JOB, training.job(one.inputs, part, programs))
        ended = wait(
            one.cluster,
            space,
            {"cluster": name},
            timeout_seconds=one.patience(part.patience_seconds(one.inputs.pods)),
            clock=one.clock,
            reporter=one.reporter,
        )
        seconds = duration(one.cluster.get(JOB, name, space))
    finally:
        one.cluster.remove(JOB, name, space)
        one.cluster.remove(SERVICE, name, space)
    return [training.judge(one.inputs, part, ended["cluster"], seconds)]


def duration(job: Mapping[str, Any] | None) -> float | None:
    """Seconds of a Job by its own status, so that nobody's clock but the cluster's counts."""
    status = (job or {}).get("status") or {}
    begun, ended = status.get("startTime"), status.get("completionTime")
    if not begun or not ended:
        return None
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()


def _remarks(inputs: LadderInputs) -> Iterator[str]:
    """What a run like this cannot show."""
    if inputs.simulated:
        yield SIMULATED
    part = inputs.training
    if inputs.highest is not CheckLevel.TRAINING or part is None:
        return
    if smoke(inputs).image != part.image:
        yield "The time of the training may hold the pull of its image: run `verify` again for a warm one."
    expected = training_times.expected_seconds(inputs.pods, part.epochs)
    if not inputs.simulated:
        yield (
            f"By the table a warm run on {inputs.pods} nodes with one V100 each takes about "
            f"{training_times.words(expected)}; the network between rootless nodes is most of it."
        )
