"""Proof that the GPUs of a cluster work; run again when driver, operator, nodes or level change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuclusters.domain.proof_inputs import ProofInputs
from gpuclusters.providers.proof_provider import ProofProvider, ProofResult

if TYPE_CHECKING:
    from gpuclusters.adapters.cluster_jobs import ClusterJobs
    from gpuclusters.domain.proof_run import Result


class ProofRunProvider(ProofProvider[ProofInputs]):
    """Made when everything passed."""

    model = ProofInputs

    def called(self, inputs: ProofInputs) -> str:
        """What it is, in messages."""
        return f"proof {inputs.level}"

    def show(self, inputs: ProofInputs, cluster: ClusterJobs) -> Result:
        """Run all checks up to the level."""
        from gpuclusters.adapters import proof_programs
        from gpuclusters.adapters.here import StderrReporter, SystemClock
        from gpuclusters.domain import proof_run

        return proof_run.run(
            inputs, cluster, SystemClock(), StderrReporter(), proof_programs.texts()
        )

    def look(self, inputs: ProofInputs, cluster: ClusterJobs) -> Mapping[str, Mapping[str, str]]:
        """Driver and resources of each node as they are."""
        from gpuclusters.domain import proof_run

        return proof_run.observe(inputs, cluster)


class ProofRun(ProofResult, module="gpu", name="ProofRun"):
    """A cluster whose GPUs were shown to work."""

    provider = ProofRunProvider
