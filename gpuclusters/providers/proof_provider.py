"""What providers of proofs have in common: made when everything held, again when what it is about changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import pulumi

from gpuclusters.domain.ladder_inputs import LadderInputs
from gpuclusters.domain.proof_inputs import ProofInputs
from gpuclusters.providers.cluster import ClusterProvider
from gpuclusters.providers.kept import Live, Properties
from gpuclusters.providers.resource import ModelResource

if TYPE_CHECKING:
    from gpuclusters.adapters.cluster_jobs import ClusterJobs
    from gpuclusters.domain.proof_run import Result

Inputs = TypeVar("Inputs", ProofInputs, LadderInputs)


class ProofProvider(ClusterProvider[Inputs]):
    """Nothing of a proof stays in the cluster."""

    @abstractmethod
    def called(self, inputs: Inputs) -> str:
        """What it is, in messages."""

    @abstractmethod
    def show(self, inputs: Inputs, cluster: ClusterJobs) -> Result:
        """Show all of it, now."""

    @abstractmethod
    def look(self, inputs: Inputs, cluster: ClusterJobs) -> Mapping[str, Mapping[str, str]]:
        """Each node as it is."""

    def ensure(self, inputs: Inputs, before: Properties) -> Properties:
        """Show it, unless the same was shown before."""
        from gpuclusters.adapters.here import time_of_day
        from gpuclusters.domain import proof_kept

        cluster = self.cluster(inputs)
        return proof_kept.ensure(
            inputs.fingerprint,
            before,
            lambda: self.show(inputs, cluster),
            place=cluster.place,
            called=self.called(inputs),
            at=time_of_day(),
        )

    def observe(self, inputs: Inputs, before: Properties) -> Live | None:
        """What was shown, and whether the nodes are still those that it was shown about."""
        from gpuclusters.domain import proof_kept

        return Live(proof_kept.observe(before, self.look(inputs, self.cluster(inputs))), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found other nodes, drivers or GPUs than those that were proven."""
        return bool(outputs.get("stale"))


class ProofResult(ModelResource):
    """Outputs of a proof."""

    proven: pulumi.Output[bool]
    """Whether every check passed; it does not exist otherwise."""
    at: pulumi.Output[str]
    """When, RFC 3339."""
    checks: pulumi.Output[int]
    """How many things were looked at."""
    evidence_sha256: pulumi.Output[str]
    """Over all of them with their numbers."""
    remarks: pulumi.Output[Sequence[str]]
    """What it does not show."""
    observed: pulumi.Output[Mapping[str, Mapping[str, str]]]
    """Each node as it was."""
    stale: pulumi.Output[Sequence[str]]
    """What is not so any more, as of the last refresh."""
    fingerprint: pulumi.Output[str]
    """Of what was asked for."""
