"""Climbs the cluster's rungs, 5 to 9, from below, and stops at the first that does not hold."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.core.finding import Finding
from gpuclusters.core.ports import ClusterObjects
from gpuclusters.gpu_operator.objects import EVENT
from gpuclusters.gpu_operator.pods import blocked, is_ready
from gpuclusters.proof import logs, manifests, nodes, training_times
from gpuclusters.proof.checks import Check, CheckLevel, ProofResult, proven
from gpuclusters.proof.cluster import Context, running, temporary_namespace
from gpuclusters.proof.manifests import CONTAINER, JOB, REACH, SERVICE, STATEFUL_SET
from gpuclusters.proof.model import WHOLE, LadderInputs, LadderNode
from gpuclusters.tenancy.model import CLAIM
from gpuclusters.tenancy.objects import NODE, POD

SIMULATED = (
    "The machines are simulated: pods ran as processes of this machine, GPUs calculated nothing, and no "
    "packet left it."
)
_REACH_POLL_SECONDS = 1.0
POOL_LABEL = "cloud.google.com/gke-nodepool"
"""On every node of GKE: the name of its pool."""
_Judge = Callable[[nodes.Snapshot, nodes.Expected], Iterator[Check]]


def run(
    inputs: LadderInputs,
    cluster: ClusterObjects,
    clock: Clock,
    reporter: Reporter,
    texts: Mapping[str, str],
    *,
    strict: bool = True,
) -> ProofResult:
    """Climb to a rung; what is made is removed again.

    `strict`: a node that nobody configured is a fault. In an `up` that takes a node away it is still
    there: Pulumi deletes last.
    """
    context = Context(
        cluster, inputs.namespace, clock, reporter, clock.now() + inputs.timeout_seconds
    )
    checks: list[Check] = []
    if inputs.pools:
        inputs, checks = _gathered(inputs, context)
    if not checks:
        checks += _settled(inputs, context, _registered if strict else nodes.registered)
    observed = observe(inputs, cluster)
    rung = CheckLevel.NODES
    if inputs.highest > rung and proven(checks):
        kinds = (JOB, STATEFUL_SET, SERVICE, manifests.CONFIG_MAP)
        with temporary_namespace(cluster, inputs.namespace, texts, kinds) as programs:
            for rung, look in _RUNGS.items():
                if rung > inputs.highest or not proven(checks):
                    break
                checks += look(inputs, context, programs)
    reached = max(CheckLevel(int(check.level[1:])) for check in checks)
    if not proven(checks):
        checks += inputs.ladder.above(
            reached, inputs.highest, f"rung {reached.value} does not hold"
        )
    return ProofResult(tuple(checks), tuple(_remarks(inputs)), observed)


def observe(inputs: LadderInputs, cluster: ClusterObjects) -> Mapping[str, Mapping[str, str]]:
    """Each node as it is: which one it is, its kubelet, what it offers."""
    found = {}
    for node in inputs.nodes or _of_pools(inputs, cluster):
        body = cluster.get(NODE, node.name) or {}
        status = body.get("status") or {}
        found[node.name] = {
            # A node that joined anew is another one: its GPUs may be too.
            "uid": str((body.get("metadata") or {}).get("uid", "")),
            "kubelet": str((status.get("nodeInfo") or {}).get("kubeletVersion", "")),
            WHOLE: str((status.get("allocatable") or {}).get(WHOLE, "0")),
        }
    return found


def _of_pools(inputs: LadderInputs, cluster: ClusterObjects) -> tuple[LadderNode, ...]:
    """The nodes of the pools, the oldest first, up to as many as are asked for."""
    there = [one for one in cluster.list(NODE) if "deletionTimestamp" not in one["metadata"]]
    there.sort(key=lambda o: (str(o["metadata"].get("creationTimestamp")), o["metadata"]["name"]))
    return tuple(
        LadderNode(name=str(one["metadata"]["name"]), gpus=pool.gpus)
        for pool in inputs.pools
        for one in [
            o for o in there if (o["metadata"].get("labels") or {}).get(POOL_LABEL) == pool.name
        ][: pool.nodes]
    )


def _gathered(inputs: LadderInputs, context: Context) -> tuple[LadderInputs, list[Check]]:
    """The inputs with the nodes of the pools; and what is wrong where some do not come in time."""
    wanted = sum(pool.nodes for pool in inputs.pools)
    found: tuple[LadderNode, ...] = ()

    def look() -> Sequence[Finding]:
        nonlocal found
        found = _of_pools(inputs, context.cluster)
        short = f"{len(found)} of {wanted} nodes of the pools are in the cluster"
        return [running(short)] if len(found) < wanted else ()

    context.poll(look, context.bounded(inputs.settle_seconds))
    # What is asked for stays what it is: the pools.
    named = inputs.model_copy(update={"nodes": found})
    if len(found) == wanted:
        return named, []
    pools = ", ".join(pool.name for pool in inputs.pools)
    said = f"{len(found)} of {wanted} nodes of the pools {pools} are in the cluster"
    return named, [inputs.ladder.failed(CheckLevel.NODES, "cluster", said)]


def _registered(snapshot: nodes.Snapshot, expected: nodes.Expected) -> Iterator[Check]:
    yield from nodes.registered(snapshot, expected)
    yield from nodes.unexpected(snapshot, expected)


def _settled(inputs: LadderInputs, context: Context, judge: _Judge) -> Sequence[Check]:
    """Rungs 5 and 7, which a cluster may need a while for."""
    expected = {node.name: node.gpus for node in inputs.nodes}
    checks: list[Check] = []

    def look() -> Sequence[Finding]:
        closely = judge is nodes.allocatable
        seen = nodes.read(context.cluster, expected, closely=closely)
        checks[:] = judge(replace(seen, ladder=inputs.ladder), expected)
        return nodes.waits(checks)

    context.poll(look, context.bounded(inputs.settle_seconds))
    return checks


def _network(inputs: LadderInputs, context: Context, programs: str) -> Sequence[Check]:
    """Wait until every pod has said what it reached, or the time is over; a check for each node."""
    answers: dict[str, Mapping[str, Any]] = {}
    wanted = len(inputs.hosts_of_pods)
    timeout_seconds = context.bounded(inputs.rung_seconds)
    why = ""

    def look() -> Sequence[Finding]:
        nonlocal why
        pods = [
            pod
            for pod in context.cluster.list(POD, inputs.namespace)
            if (pod["metadata"].get("labels") or {}).get(manifests.LABEL) == REACH
        ]
        for pod in pods:
            name = str(pod["metadata"]["name"])
            if name not in answers and (pod.get("status") or {}).get("phase") == "Running":
                log = context.cluster.log(inputs.namespace, name, CONTAINER)
                if answer := logs.json_line(log, REACH):
                    answers[name] = answer
        if len(answers) == wanted:
            return ()
        # A pod whose container is started again and again is in the phase Running all the time.
        silent = [p for p in pods if not is_ready(p) and p["metadata"]["name"] not in answers]
        now = "" if pods else "the set has no pods"
        if silent:
            now = blocked(silent[0], context.cluster.list(EVENT, inputs.namespace))
        why = now or why
        return [running(f"rung 6: {now or 'pods that look for each other'}")]

    service = (SERVICE, manifests.headless(inputs, REACH))
    with context.objects(service, (STATEFUL_SET, manifests.reach_set(inputs, programs))):
        context.poll(look, timeout_seconds, _REACH_POLL_SECONDS)
    found = (logs.reached(inputs.ladder, answer) for answer in answers.values())
    checks = sorted(found, key=lambda check: check.subject)
    if len(answers) < wanted:
        silence = f"{len(answers)} of {wanted} pods spoke in {timeout_seconds:g} s"
        said = f"{silence}: {why or 'nothing says why'}"
        checks.append(inputs.ladder.failed(CheckLevel.NETWORK, "cluster", said, told=[said]))
    return checks


def _vector_add(inputs: LadderInputs, context: Context, programs: str) -> Sequence[Check]:
    jobs = {n.name: manifests.vector_add(inputs, n, programs) for n in inputs.hosts_of_pods}
    ended = context.run(jobs, context.bounded(inputs.rung_seconds))
    return [logs.vector_add(inputs.ladder, node, ended[node]) for node in jobs]


def _training(inputs: LadderInputs, context: Context, programs: str) -> Sequence[Check]:
    space, part, name = inputs.namespace, inputs.training, manifests.TRAINING
    if part is None:
        raise ValueError("rung 9 without a training")
    if part.claim and context.cluster.get(CLAIM, part.claim, space) is None:
        said = f"the namespace {space} has no PersistentVolumeClaim {part.claim}"
        way = "make the namespace and the claim with the data, or bake them into the image"
        return [inputs.ladder.failed(CheckLevel.TRAINING, "cluster", said, way)]
    service = (SERVICE, manifests.headless(inputs, name))
    with context.objects(service, (JOB, manifests.training(inputs, part, programs))):
        ended = context.wait({"cluster": name}, context.bounded(part.patience_seconds(inputs.pods)))
        seconds = duration(context.cluster.get(JOB, name, space))
    return [logs.training(inputs, part, ended["cluster"], seconds)]


_RUNGS: Mapping[CheckLevel, Callable[[LadderInputs, Context, str], Sequence[Check]]] = {
    CheckLevel.NETWORK: _network,
    CheckLevel.ALLOCATABLE: lambda inputs, context, _: _settled(inputs, context, nodes.allocatable),
    CheckLevel.VECTOR_ADD: _vector_add,
    CheckLevel.TRAINING: _training,
}


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
    if inputs.python_image != part.image:
        yield "The time of the training may hold the pull of its image: run `verify` again for a warm one."
    if not inputs.simulated:
        expected = training_times.expected_seconds(inputs.pods, part.epochs, inputs.ladder.kind)
        most = "" if inputs.pools else "; the network between rootless nodes is most of it"
        yield (
            f"By the table a warm run on {inputs.pods} nodes with one V100 each takes about "
            f"{training_times.words(expected)}{most}."
        )
