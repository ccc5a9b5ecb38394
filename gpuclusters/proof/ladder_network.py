"""Rung 6: what the pods of all nodes say about reaching each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.domain import known_errors
from gpuclusters.gpu_operator.objects import EVENT
from gpuclusters.gpu_operator.pods import blocked, is_ready
from gpuclusters.proof.checks import Check
from gpuclusters.proof.ladder import CheckLevel, failed, passed
from gpuclusters.proof.ladder_inputs import LadderInputs
from gpuclusters.proof.ladder_pods import REACH
from gpuclusters.proof.namespace import JobCluster
from gpuclusters.proof.pod import CONTAINER, LABEL
from gpuclusters.tenancy.objects import POD

POLL_SECONDS = 1.0
Object = Mapping[str, Any]


def told(log: str) -> Mapping[str, Any] | None:
    """The line of a pod's program; None if it has not come yet."""
    for line in log.splitlines():
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and found.get("proof") == REACH:
                return found
    return None


def watch(
    inputs: LadderInputs,
    cluster: JobCluster,
    clock: Clock,
    reporter: Reporter,
    timeout_seconds: float,
) -> Sequence[Check]:
    """Wait until every pod has said what it reached, or the time is over; a check for each node."""
    started = clock.now()
    answers: dict[str, Mapping[str, Any]] = {}
    said = ""
    while True:
        pods = [pod for pod in cluster.list(POD, inputs.namespace) if _is_ours(pod)]
        for pod in pods:
            name = str(pod["metadata"]["name"])
            if name not in answers and (pod.get("status") or {}).get("phase") == "Running":
                answer = told(cluster.log(inputs.namespace, name, CONTAINER))
                if answer is not None:
                    answers[name] = answer
        if len(answers) == len(inputs.hosts_of_pods):
            return [judge(answer) for answer in _by_node(answers)]
        waits = _waits(cluster, inputs.namespace, pods, answers)
        if waits and waits != said:
            reporter.note(f"{cluster.target}: rung 6 waits: {waits}")
            said = waits
        if clock.now() - started > timeout_seconds:
            break
        clock.sleep(POLL_SECONDS)
    silent = f"{len(answers)} of {len(inputs.hosts_of_pods)} pods spoke in {timeout_seconds:g} s"
    why = f"{silent}: {said or 'nothing says why'}"
    return [
        *(judge(answer) for answer in _by_node(answers)),
        failed(CheckLevel.NETWORK, "cluster", why, known_errors.advice("ladder", why)),
    ]


def judge(answer: Mapping[str, Any]) -> Check:
    """What one pod shows about its node."""
    node, peers = str(answer.get("node", "?")), list(answer.get("peers") or ())
    wrong = [peer for peer in peers if "failed" in peer]
    if wrong:
        text = "; ".join(f"{peer['peer']}: {peer['failed']}" for peer in wrong)
        return failed(CheckLevel.NETWORK, node, f"{len(wrong)} of {len(peers)} not reached: {text}")
    if not peers:
        return passed(CheckLevel.NETWORK, node, "the only node: nobody to reach")
    slowest = max(float(peer.get("seconds", 0)) for peer in peers)
    others = ", ".join(sorted({str(peer.get("node", "?")) for peer in peers}))
    return passed(
        CheckLevel.NETWORK,
        node,
        f"reaches {others} by name",
        peers=len(peers),
        slowest_seconds=slowest,
    )


def _is_ours(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).get(LABEL) == REACH


def _by_node(answers: Mapping[str, Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return sorted(answers.values(), key=lambda answer: str(answer.get("node", "")))


def _waits(
    cluster: JobCluster, space: str, pods: Sequence[Object], answers: Mapping[str, Any]
) -> str:
    """What keeps the first silent pod from running; empty while all run."""
    for pod in pods:
        # A pod whose container is started again and again is in the phase Running all the time.
        if not is_ready(pod) and str(pod["metadata"]["name"]) not in answers:
            return blocked(pod, cluster.list(EVENT, space))
    return "" if pods else "the set has no pods"
