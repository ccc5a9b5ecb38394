"""The Jobs of a proof, one for each test and node.

DCGM's diagnostics are only a client of the node's own host engine, and nothing else of the ladder needs
a privilege.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.domain.custom_resource import GROUP
from gpuclusters.proof import pod as proof_pod
from gpuclusters.proof.checks import ProofTest
from gpuclusters.proof.matmul import SECONDS, SIZE
from gpuclusters.proof.model import (
    AnyTest,
    BurnTest,
    CollectiveTest,
    DiagnosticsTest,
    LoadTest,
    MatmulTest,
    ProofInputs,
    ProofNode,
)
from gpuclusters.proof.pod import CONFIG_MAP, CONTAINER, FOLDER, JOB, LABEL

__all__ = ["CONFIG_MAP", "CONTAINER", "JOB", "LABEL", "PROGRAMS", "concerns", "job", "name"]

NODE_ANNOTATION = f"{GROUP}/proof-node"
DCGM_PORT = 5555
PROGRAMS: Mapping[ProofTest, str] = {
    ProofTest.MATMUL: "matmul.py",
    ProofTest.DIAGNOSTICS: "diagnostics.sh",
    ProofTest.LOAD: "load.sh",
}
"""Files of gpuclusters/proof/scripts that are mounted; the other tests are programs of their images."""


def name(test: ProofTest, node: str) -> str:
    """Of a Job; nodes with long names are told apart by a digest."""
    return proof_pod.job_name(test.value, node)


def concerns(test: ProofTest, node: ProofNode) -> bool:
    """Whether a test means anything for a node: all but matrices need whole GPUs that nobody shares."""
    if test is ProofTest.MATMUL:
        return True
    return node.whole_gpus > 1 if test is ProofTest.COLLECTIVE else node.whole_gpus > 0


def job(
    inputs: ProofInputs,
    test: ProofTest,
    node: ProofNode,
    *,
    config_map: str,
    image: str,
    host: str = "",
) -> dict[str, Any]:
    """One Job.

    Args:
        inputs: of the proof.
        test: what it runs.
        node: where.
        config_map: name of the ConfigMap with the programs.
        image: by digest.
        host: for diagnostics, where the node's host engine listens.
    """
    part = inputs.test(test)
    if part is None:
        raise ValueError(f"{test} is not described")
    metadata = {
        "name": name(test, node.name),
        "namespace": inputs.namespace,
        "labels": {LABEL: test.value},
        "annotations": {NODE_ANNOTATION: node.name},
    }
    container = proof_pod.container(image, _command(part, node, host), node.requests)
    place = proof_pod.on_nodes([node.name], inputs.tolerations)
    pod = proof_pod.spec(container, place, config_map=config_map)
    return proof_pod.job(metadata, pod, timeout_seconds=part.timeout_seconds)


def _command(part: AnyTest, node: ProofNode, host: str) -> Sequence[str]:
    match part:
        case MatmulTest():
            program = f"{FOLDER}/{PROGRAMS[ProofTest.MATMUL]}"
            return ["python3", program, "--size", str(SIZE), "--seconds", str(SECONDS)]
        case DiagnosticsTest(run_level=level):
            return ["sh", f"{FOLDER}/{PROGRAMS[ProofTest.DIAGNOSTICS]}", host, str(level)]
        case LoadTest(cuda_major=cuda, seconds=seconds):
            return ["sh", f"{FOLDER}/{PROGRAMS[ProofTest.LOAD]}", str(cuda), str(seconds)]
        case BurnTest(seconds=seconds):
            # Relative to the image's folder, as its own Dockerfile has it.
            return ["./gpu_burn", "-tc", str(seconds)]
        case CollectiveTest():
            sizes = ["-b", "8", "-e", "8G", "-f", "2", "-g", str(node.whole_gpus)]
            return ["/usr/local/bin/all_reduce_perf_mpi", *sizes]
