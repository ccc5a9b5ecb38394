"""What providers of proofs have in common: made when everything held, again when what it is about changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pulumi

from gpuclusters.proof import plugin_gate
from gpuclusters.proof.ladder_inputs import LadderInputs
from gpuclusters.proof.model import ProofInputs
from gpuclusters.proof.plugin_gate import GateInputs
from gpuclusters.providers.cluster import ClusterProvider
from gpuclusters.providers.reconciling import Live, Properties
from gpuclusters.providers.resource import ModelResource

if TYPE_CHECKING:
    from gpuclusters.adapters.cluster_jobs import ClusterJobs
    from gpuclusters.proof.run import ProofResult


Inputs = TypeVar("Inputs", ProofInputs, LadderInputs)


class ProofProvider(ClusterProvider[Inputs]):
    """Nothing of a proof stays in the cluster."""

    @abstractmethod
    def called(self, inputs: Inputs) -> str:
        """What it is, in messages."""

    @abstractmethod
    def show(self, inputs: Inputs, cluster: ClusterJobs) -> ProofResult:
        """Show all of it, now."""

    @abstractmethod
    def look(self, inputs: Inputs, cluster: ClusterJobs) -> Mapping[str, Mapping[str, str]]:
        """Each node as it is."""

    def ensure(self, inputs: Inputs, before: Properties) -> Properties:
        """Show it, unless the same was shown before."""
        from gpuclusters.core.converge import time_of_day
        from gpuclusters.proof import state

        cluster = self.cluster(inputs)
        return state.ensure(
            inputs.fingerprint,
            before,
            lambda: self.show(inputs, cluster),
            target=cluster.target,
            called=self.called(inputs),
            at=time_of_day(),
        )

    def observe(self, inputs: Inputs, before: Properties) -> Live | None:
        """What was shown, and whether the nodes are still those that it was shown about."""
        from gpuclusters.proof import state

        return Live(state.observe(before, self.look(inputs, self.cluster(inputs))), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found other nodes, drivers or GPUs than those that were proven."""
        return bool(outputs.get("stale"))


class KeptProof(ModelResource):
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


class ProofRunProvider(ProofProvider[ProofInputs]):
    """Made when everything passed."""

    model = ProofInputs

    def called(self, inputs: ProofInputs) -> str:
        """What it is, in messages."""
        return f"proof {inputs.level}"

    def show(self, inputs: ProofInputs, cluster: ClusterJobs) -> ProofResult:
        """Run all checks up to the level."""
        from gpuclusters.core.converge import StderrReporter, SystemClock
        from gpuclusters.proof import host, run

        return run.run(inputs, cluster, SystemClock(), StderrReporter(), host.texts())

    def look(self, inputs: ProofInputs, cluster: ClusterJobs) -> Mapping[str, Mapping[str, str]]:
        """Driver and resources of each node as they are."""
        from gpuclusters.proof import run

        return run.observe(inputs, cluster)


class ProofRun(KeptProof, module="gpu", name="ProofRun"):
    """A cluster whose GPUs were shown to work."""

    provider = ProofRunProvider


class TrainingProofProvider(ProofProvider[LadderInputs]):
    """Made when every rung held."""

    model = LadderInputs

    def called(self, inputs: LadderInputs) -> str:
        """What it is, in messages."""
        return f"the ladder up to rung {inputs.rung}"

    def show(self, inputs: LadderInputs, cluster: ClusterJobs) -> ProofResult:
        """Climb."""
        from gpuclusters.core.converge import StderrReporter, SystemClock
        from gpuclusters.proof import host, ladder_run

        texts = host.texts(ladder_run.PROGRAMS)
        return ladder_run.run(inputs, cluster, SystemClock(), StderrReporter(), texts, strict=False)

    def look(self, inputs: LadderInputs, cluster: ClusterJobs) -> Mapping[str, Mapping[str, str]]:
        """Each node as it is: which one, its kubelet, its GPUs."""
        from gpuclusters.proof import ladder_run

        return ladder_run.observe(inputs, cluster)


class TrainingProof(KeptProof, module="gpu", name="TrainingProof"):
    """A rootless cluster whose GPUs were shown to work together."""

    provider = TrainingProofProvider


class PluginGateProvider(ClusterProvider[GateInputs]):
    """Made when all nodes offer their GPUs; tells by a refresh which do no more, and why."""

    model = GateInputs

    def ensure(self, inputs: GateInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Wait."""
        from gpuclusters.core.converge import StderrReporter, SystemClock

        return dict(plugin_gate.wait(inputs, self.cluster(inputs), SystemClock(), StderrReporter()))

    def observe(self, inputs: GateInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The GPUs as they are offered now."""
        return Live(plugin_gate.outputs(inputs, self.cluster(inputs)), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found a node that does not offer its GPUs."""
        return bool(outputs.get("drift"))


class PluginGate(ModelResource, module="gpu", name="PluginGate"):
    """A gate: what depends on it finds the GPUs that were declared."""

    provider = PluginGateProvider

    allocatable: pulumi.Output[Mapping[str, int]]
    """GPUs by node, as offered."""
    drift: pulumi.Output[Sequence[Mapping[str, Any]]]
    """Findings of the last refresh, with what the plugin says; empty after `up`."""
