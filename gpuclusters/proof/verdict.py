"""From how a Job ended to what it shows, and what a whole run does not show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpuclusters.proof import dcgm, jobs, load, matmul, nccl
from gpuclusters.proof.checks import LEVEL_OF, Check, Level, Outcome, ProofTest
from gpuclusters.proof.model import (
    BurnTest,
    CollectiveTest,
    DiagnosticsTest,
    LoadTest,
    MatmulTest,
    ProofInputs,
    ProofNode,
)
from gpuclusters.proof.wait import Ended

SIMULATED = (
    "The GPUs are simulated: what a proof computes, it computes on this machine's processor, so nothing "
    "here is about GPUs."
)


def judge(
    inputs: ProofInputs,
    test: ProofTest,
    node: ProofNode,
    ended: Ended,
    seen: Mapping[str, Mapping[str, float]],
) -> Sequence[Check]:
    """What a Job of a test shows about its node.

    Args:
        inputs: of the proof.
        test: that it ran.
        node: where.
        ended: how.
        seen: how active GPUs were under load, by node and GPU.
    """
    level = LEVEL_OF[test]
    if ended.exit_code is None:
        return [Check(level, node.name, f"runs {test.value}", Outcome.FAILED, ended.said)]
    code, log, gpus = ended.exit_code, ended.log, node.whole_gpus
    match inputs.test(test):
        case MatmulTest(floor_percent=floor):
            return matmul.judge(node, log, floor_percent=floor, simulated=inputs.simulated)
        case DiagnosticsTest():
            return dcgm.judge(node.name, log, exit_code=code)
        case LoadTest(tensor_active_percent=percent):
            return _load(inputs, node, ended, seen, percent)
        case BurnTest():
            return load.judge_burn(node.name, gpus, log, exit_code=code)
        case CollectiveTest(floor_gb_per_second=floor):
            return nccl.judge(node.name, log, floor_gb_per_second=floor, exit_code=code)
    return []


def _load(
    inputs: ProofInputs,
    node: ProofNode,
    ended: Ended,
    seen: Mapping[str, Mapping[str, float]],
    percent: int,
) -> Sequence[Check]:
    if ended.exit_code:
        said = f"{ended.said}: {ended.log.strip()[-300:]}"
        return [Check(Level.L2, node.name, "runs load", Outcome.FAILED, said)]
    if inputs.prometheus is None:
        said = "no Prometheus is known that could have seen it"
        return [Check(Level.L2, node.name, "is seen under load", Outcome.NOT_TRIED, said)]
    return load.judge_load(node.name, node.whole_gpus, seen.get(node.name, {}), percent)


def remarks(inputs: ProofInputs) -> Iterator[str]:
    """What a run like this cannot show."""
    if inputs.simulated:
        yield SIMULATED
    if inputs.level is Level.L4 and inputs.burn is None:
        yield "The burn-in of L3 was not run: no image with gpu_burn is given."
    if inputs.level is Level.L4:
        yield "All-reduce ran on each node by itself; the network between nodes was not tried."
    for test in inputs.tests:
        left = [node.name for node in inputs.nodes if not jobs.concerns(test, node)]
        if left:
            yield (
                f"{test.value} does not apply to {', '.join(left)}: it needs whole GPUs that are not shared"
                + (", more than one." if test is ProofTest.COLLECTIVE else ".")
            )
