"""Runs a ladder of proofs from below, and stops at the first step that does not hold."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.core.finding import Finding
from gpuclusters.core.ports import ClusterObjects
from gpuclusters.gpu_operator import readiness
from gpuclusters.proof import logs, manifests
from gpuclusters.proof.checks import Check, Level, Outcome, ProofResult, proven
from gpuclusters.proof.cluster import Context, Ended, running, temporary_namespace
from gpuclusters.proof.model import (
    AnyTest,
    Burn,
    Collective,
    Diagnostics,
    Load,
    Matmul,
    ProofInputs,
    ProofNode,
)
from gpuclusters.tenancy.objects import NODE, POD

SCRAPE_SECONDS = 90.0
"""Within this a load must have been scraped; by default Prometheus asks every 15 to 60 seconds."""
DCGM_APP = "nvidia-dcgm"
SIMULATED = (
    "The GPUs are simulated: what a proof computes, it computes on this machine's processor, so nothing "
    "here is about GPUs."
)
_DRIVER = ("nvidia.com/cuda.driver-version.full", "nvidia.com/cuda.driver.major")
_NO_ENGINE = (
    f"no pod of {DCGM_APP} with an address and an image by digest runs on it; set the operator's value "
    "dcgm.enabled: true, or give diagnostics an image"
)
Seen = Mapping[str, Mapping[str, float]]
"""How active GPUs were under load, by node and GPU."""


def run(
    inputs: ProofInputs,
    cluster: ClusterObjects,
    clock: Clock,
    reporter: Reporter,
    texts: Mapping[str, str],
) -> ProofResult:
    """Climb to the level that is asked for.

    Whatever is made is removed again, also what a run left that was killed.
    """
    context = Context(
        cluster, inputs.namespace, clock, reporter, clock.now() + inputs.timeout_seconds
    )
    checks = list(_offered(inputs, cluster))
    observed = observe(inputs, cluster)
    if inputs.tests and proven(checks):
        with temporary_namespace(cluster, inputs.namespace, texts) as programs:
            checks += _climb(inputs, context, programs)
    return ProofResult(tuple(checks), tuple(remarks(inputs)), observed)


def observe(inputs: ProofInputs, cluster: ClusterObjects) -> Mapping[str, Mapping[str, str]]:
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


def remarks(inputs: ProofInputs) -> Iterator[str]:
    """What a run like this cannot show."""
    if inputs.simulated:
        yield SIMULATED
    if inputs.level is Level.L4 and inputs.burn is None:
        yield "The burn-in of L3 was not run: no image with gpu_burn is given."
    if inputs.level is Level.L4:
        yield "All-reduce ran on each node by itself; the network between nodes was not tried."
    for test in inputs.tests:
        more = ", more than one" if test.whole_gpus > 1 else ""
        if left := [node.name for node in inputs.nodes if not test.concerns(node)]:
            why = f"it needs whole GPUs that are not shared{more}"
            yield f"{test.name} does not apply to {', '.join(left)}: {why}."


def _offered(inputs: ProofInputs, cluster: ClusterObjects) -> Iterator[Check]:
    """L0: what the gate before this one looked at too, as of now."""
    expected = {node.name: node.resources for node in inputs.nodes}
    waits = readiness.missing(readiness.read(cluster, inputs.operator_namespace), expected)
    check = partial(
        Check, Level.L0, "cluster", "the operator is reconciled and every node offers its GPUs"
    )
    yield from (check(Outcome.FAILED, wanted.problem) for wanted in waits)
    if not waits:
        total = sum(sum(node.resources.values()) for node in inputs.nodes)
        yield check(Outcome.PASSED, f"{total} devices on {len(inputs.nodes)} nodes")


def _climb(inputs: ProofInputs, context: Context, programs: str) -> Iterator[Check]:
    why = ""
    for test in inputs.tests:
        if context.left_seconds <= 0:
            why = why or f"the {inputs.timeout_seconds} s for the whole proof are over"
        if why:
            yield Check(test.level, "cluster", f"runs {test.name}", Outcome.NOT_TRIED, why)
            continue
        found = _step(inputs, context, test, programs)
        yield from found
        if any(check.outcome is not Outcome.PASSED for check in found):
            why = f"{test.name} did not pass"


def _step(inputs: ProofInputs, context: Context, test: AnyTest, programs: str) -> Sequence[Check]:
    checks: list[Check] = []
    nodes = {node.name: node for node in inputs.nodes if test.concerns(node)}
    jobs = {
        name: _job(inputs, context.cluster, test, node, programs) for name, node in nodes.items()
    }
    for name in [name for name, job in jobs.items() if job is None]:
        what = "passes DCGM's diagnostics"
        checks.append(Check(Level.L2, name, what, Outcome.NOT_TRIED, _NO_ENGINE))
    made = {name: job for name, job in jobs.items() if job is not None}
    ended = context.run(made, context.bounded(test.timeout_seconds))
    seen: Seen = {}
    if isinstance(test, Load) and all(one.exit_code == 0 for one in ended.values()):
        seen = _seen(inputs, test, context, ended)
    for name in made:
        checks += _judge(inputs, test, nodes[name], ended[name], seen)
    return checks


def _job(
    inputs: ProofInputs, cluster: ClusterObjects, test: AnyTest, node: ProofNode, programs: str
) -> dict[str, Any] | None:
    """The Job of one node; None where DCGM's diagnostics find no engine to ask."""
    image, address = test.image, ""
    if isinstance(test, Diagnostics):
        engine = _engine(inputs, cluster, node.name)
        address = str((engine.get("status") or {}).get("podIP", ""))
        image = image or _pinned(engine)
        if not address or image is None:
            return None
        address = f"{address}:{manifests.DCGM_PORT}"
    return manifests.job(inputs, test, node, config_map=programs, image=str(image), engine=address)


def _engine(inputs: ProofInputs, cluster: ClusterObjects, node: str) -> Mapping[str, Any]:
    pods = cluster.list(POD, inputs.operator_namespace)
    here = (pod for pod in pods if (pod.get("spec") or {}).get("nodeName") == node)
    labels = ((pod, pod["metadata"].get("labels") or {}) for pod in here)
    return next((pod for pod, known in labels if known.get("app") == DCGM_APP), {})


def _pinned(pod: Mapping[str, Any]) -> str | None:
    """The image that a pod runs, as its kubelet names it by digest."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        image = str(status.get("imageID", "")).removeprefix("docker-pullable://")
        if "@sha256:" in image:
            return image
    return None


def _seen(inputs: ProofInputs, load: Load, context: Context, ended: Mapping[str, Ended]) -> Seen:
    """What Prometheus saw of the load; asked until every GPU is there, for the time of a few scrapes."""
    target = inputs.prometheus
    if target is None:
        return {}
    pods = context.cluster.list(POD, inputs.operator_namespace)
    node_of = {str(p["metadata"]["name"]): str(p["spec"].get("nodeName", "")) for p in pods}
    node_of |= {over.pod: node for node, over in ended.items() if over.pod}
    query = {"query": logs.tensor_query(load.seconds + int(SCRAPE_SECONDS))}
    least = load.tensor_active_percent / 100
    seen: Seen = {}

    def look() -> Sequence[Finding]:
        nonlocal seen
        where = (target.namespace, target.service, target.port)
        seen = logs.active(context.cluster.ask(*where, "api/v1/query", query), node_of)
        busy = {n: sum(share >= least for share in gpus.values()) for n, gpus in seen.items()}
        late = (
            n.name for n in inputs.nodes if n.name in ended and busy.get(n.name, 0) < n.whole_gpus
        )
        return [running(f"the load of {name} in Prometheus") for name in late]

    context.poll(look, SCRAPE_SECONDS)
    return seen


def _judge(
    inputs: ProofInputs, test: AnyTest, node: ProofNode, ended: Ended, seen: Seen
) -> Sequence[Check]:
    """What a Job of a test shows about its node."""
    name, gpus, of = node.name, node.whole_gpus, partial(Check, test.level, node.name)
    if ended.exit_code is None:
        return [of(f"runs {test.name}", Outcome.FAILED, ended.said)]
    code, log = ended.exit_code, ended.log
    match test:
        case Matmul(floor_percent=percent, floor_tflops=tflops):
            asked = partial(logs.matmul, floor_percent=percent, floor_tflops=tflops)
            return list(asked(node, log, simulated=inputs.simulated))
        case Diagnostics():
            return logs.diagnostics(name, log, exit_code=code)
        case Load() if code:
            return [of("runs load", Outcome.FAILED, f"{ended.said}: {log.strip()[-300:]}")]
        case Load() if inputs.prometheus is None:
            said = "no Prometheus is known that could have seen it"
            return [of("is seen under load", Outcome.NOT_TRIED, said)]
        case Load(tensor_active_percent=percent):
            return [logs.load(name, gpus, seen.get(name, {}), percent)]
        case Burn():
            return list(logs.burn(name, gpus, log, exit_code=code))
        case Collective(floor_gb_per_second=floor):
            return [logs.reduce(name, log, floor_gb_per_second=floor, exit_code=code)]
