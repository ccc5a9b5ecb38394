"""Proofs as resources: made when everything held, again when what they are about changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pulumi

from gpuclusters.core.finding import refused
from gpuclusters.proof import checks, nodes
from gpuclusters.proof.evidence import digest
from gpuclusters.proof.manifests import LADDER_PROGRAMS, texts
from gpuclusters.proof.model import LadderInputs, ProofInputs
from gpuclusters.proof.nodes import GateInputs
from gpuclusters.providers.reconciling import ClusterProvider, Live, Properties
from gpuclusters.providers.resource import ModelResource

if TYPE_CHECKING:
    from gpuclusters.kube.jobs import ClusterJobs
    from gpuclusters.proof.checks import ProofResult

Inputs = TypeVar("Inputs", ProofInputs, LadderInputs)
_SHOWN = 12
"""Lines of an error; the rest is counted."""


class ProofProvider(ClusterProvider[Inputs]):
    """Nothing of a proof stays in the cluster."""

    @abstractmethod
    def called(self, inputs: Inputs) -> str:
        """What it is, in messages."""

    @abstractmethod
    def show(self, inputs: Inputs, cluster: ClusterJobs) -> ProofResult:
        """Run it now."""

    @abstractmethod
    def look(self, inputs: Inputs, cluster: ClusterJobs) -> Mapping[str, Mapping[str, str]]:
        """Each node as it is."""

    def ensure(self, inputs: Inputs, before: Properties) -> Properties:
        """Run it, unless the same was shown before and is not stale."""
        from gpuclusters.core.converge import time_of_day

        if before.get("fingerprint") == inputs.fingerprint and not before.get("stale"):
            return {key: before[key] for key in OUTPUTS}
        cluster = self.cluster(inputs)
        found = self.show(inputs, cluster)
        if not checks.proven(found.checks):
            raise refused(
                cluster.target,
                "proof.failed",
                f"{self.called(inputs)} does not hold:{_listed(found)}\n ",
                "correct what failed and run `up` again; `gpu-clusters verify` shows all checks",
            )
        shown = [check.document() for check in found.checks]
        return {
            "proven": True,
            "at": time_of_day(),
            "checks": len(shown),
            "evidence_sha256": digest({"checks": shown, "remarks": list(found.remarks)}),
            "remarks": list(found.remarks),
            "observed": {node: dict(facts) for node, facts in found.observed.items()},
            "stale": [],
            "fingerprint": inputs.fingerprint,
        }

    def observe(self, inputs: Inputs, before: Properties) -> Live | None:
        """What was shown, and whether the nodes are still those that it was shown about."""
        was: Mapping[str, Mapping[str, str]] = before.get("observed") or {}
        now = self.look(inputs, self.cluster(inputs))
        stale = [
            f"{node}: {key} was {was.get(node, {}).get(key) or 'unknown'}, is {value or 'gone'}"
            for node, facts in sorted(now.items())
            for key, value in facts.items()
            if was.get(node, {}).get(key) != value
        ]
        return Live({key: before[key] for key in OUTPUTS if key in before} | {"stale": stale}, {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found other nodes, drivers or GPUs than those that were proven."""
        return bool(outputs.get("stale"))


def _listed(found: ProofResult) -> str:
    lines = [*checks.faults(found.checks)] or ["nothing was looked at"]
    more = f"\n  - and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "".join(f"\n  - {line}" for line in lines[:_SHOWN]) + more


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


OUTPUTS = tuple(KeptProof.__annotations__)


class ProofRunProvider(ProofProvider[ProofInputs]):
    """Made when everything passed."""

    model = ProofInputs

    def called(self, inputs: ProofInputs) -> str:
        """What it is, in messages."""
        return f"proof {inputs.level}"

    def show(self, inputs: ProofInputs, cluster: ClusterJobs) -> ProofResult:
        """Run all checks up to the level."""
        from gpuclusters.core.converge import StderrReporter, SystemClock
        from gpuclusters.proof import run

        return run.run(inputs, cluster, SystemClock(), StderrReporter(), texts())

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
        from gpuclusters.proof import ladder_run

        programs = texts(LADDER_PROGRAMS)
        return ladder_run.run(
            inputs, cluster, SystemClock(), StderrReporter(), programs, strict=False
        )

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

        return dict(nodes.wait(inputs, self.cluster(inputs), SystemClock(), StderrReporter()))

    def observe(self, inputs: GateInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The GPUs as they are offered now."""
        return Live(inputs.outputs(self.cluster(inputs)), {})

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
