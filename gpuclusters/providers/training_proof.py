"""Proof that a rootless cluster's GPUs work together: rungs 5 to 9, again when what it is about changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuclusters.domain.ladder_inputs import LadderInputs
from gpuclusters.providers.proof_provider import ProofProvider, ProofResult

if TYPE_CHECKING:
    from gpuclusters.adapters.cluster_jobs import ClusterJobs
    from gpuclusters.domain.proof_run import Result


class TrainingProofProvider(ProofProvider[LadderInputs]):
    """Made when every rung held."""

    model = LadderInputs

    def called(self, inputs: LadderInputs) -> str:
        """What it is, in messages."""
        return f"the ladder up to rung {inputs.rung}"

    def show(self, inputs: LadderInputs, cluster: ClusterJobs) -> Result:
        """Climb."""
        from gpuclusters.adapters import proof_programs
        from gpuclusters.adapters.here import StderrReporter, SystemClock
        from gpuclusters.domain import ladder_run

        texts = proof_programs.texts(ladder_run.PROGRAMS)
        return ladder_run.run(inputs, cluster, SystemClock(), StderrReporter(), texts, strict=False)

    def look(self, inputs: LadderInputs, cluster: ClusterJobs) -> Mapping[str, Mapping[str, str]]:
        """Each node as it is: which one, its kubelet, its GPUs."""
        from gpuclusters.domain import ladder_run

        return ladder_run.observe(inputs, cluster)


class TrainingProof(ProofResult, module="gpu", name="TrainingProof"):
    """A rootless cluster whose GPUs were shown to work together."""

    provider = TrainingProofProvider
