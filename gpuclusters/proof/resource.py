"""Proofs as resources: made when everything held, again when what they are about changes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import pulumi

from gpuclusters.core.converge import Clock, Reporter, time_of_day
from gpuclusters.core.finding import refused
from gpuclusters.core.ports import ClusterObjects
from gpuclusters.gpu_operator.resource import GateProvider
from gpuclusters.proof import checks, ladder_run, run
from gpuclusters.proof.checks import ProofResult
from gpuclusters.proof.evidence import digest
from gpuclusters.proof.manifests import LADDER_PROGRAMS, texts
from gpuclusters.proof.model import PROGRAMS, LadderInputs, ProofInputs
from gpuclusters.proof.nodes import PluginGateInputs
from gpuclusters.providers.reconciling import ClusterProvider, Live, Properties
from gpuclusters.providers.resource import ModelResource

Inputs = TypeVar("Inputs", ProofInputs, LadderInputs)
_SHOWN = 12
"""Lines of an error; the rest is counted."""


class ProofProvider(ClusterProvider[Inputs]):
    """Nothing of a proof stays in the cluster."""

    drifts = "stale"
    title: ClassVar[str]
    """What it is, in messages, with its inputs in braces."""
    programs: ClassVar[Sequence[str]]
    show: Callable[[Inputs, ClusterObjects, Clock, Reporter, Mapping[str, str]], ProofResult]
    """Runs it."""
    look: Callable[[Inputs, ClusterObjects], Mapping[str, Mapping[str, str]]]
    """Each node as it is."""

    def ensure(self, inputs: Inputs, before: Properties) -> Properties:
        if before.get("fingerprint") == inputs.fingerprint and not before.get("stale"):
            return {key: before[key] for key in OUTPUTS}
        cluster = self.cluster(inputs)
        found = self.show(inputs, cluster, Clock(), Reporter(), texts(self.programs))
        if not checks.proven(found.checks):
            raise refused(
                cluster.target,
                "proof.failed",
                f"{self.title.format(inputs)} does not hold:{_listed(found)}\n ",
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


def _listed(found: ProofResult) -> str:
    lines = [*checks.faults(found.checks)] or ["nothing was looked at"]
    more = f"\n  - and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "".join(f"\n  - {line}" for line in lines[:_SHOWN]) + more


class KeptProof(ModelResource):
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

    def verdict(self) -> dict[str, pulumi.Output[str]]:
        """What the outputs of a stack say of it."""
        passed = self.proven.apply(lambda proven: "passed" if proven else "failed")
        return {"verdict": passed, "at": self.at, "evidence_sha256": self.evidence_sha256}


OUTPUTS = tuple(KeptProof.__annotations__)


class ProofRunProvider(ProofProvider[ProofInputs]):
    """Made when everything passed."""

    model = ProofInputs
    title = "proof {0.level}"
    programs = PROGRAMS
    show = staticmethod(run.run)
    look = staticmethod(run.observe)


class ProofRun(KeptProof, module="gpu", name="ProofRun"):
    """A cluster whose GPUs were shown to work."""

    provider = ProofRunProvider


class TrainingProofProvider(ProofProvider[LadderInputs]):
    """Made when every rung held."""

    model = LadderInputs
    title = "the ladder up to rung {0.rung}"
    programs = LADDER_PROGRAMS
    show = staticmethod(partial(ladder_run.run, strict=False))
    look = staticmethod(ladder_run.observe)


class TrainingProof(KeptProof, module="gpu", name="TrainingProof"):
    """A rootless cluster whose GPUs were shown to work together."""

    provider = TrainingProofProvider


class PluginGateProvider(GateProvider[PluginGateInputs]):
    """Of the GPUs that all nodes offer."""

    model = PluginGateInputs


class PluginGate(ModelResource, module="gpu", name="PluginGate"):
    """A gate: what depends on it finds the GPUs that were declared."""

    provider = PluginGateProvider

    allocatable: pulumi.Output[Mapping[str, int]]
    """GPUs by node, as offered."""
    drift: pulumi.Output[Sequence[Mapping[str, Any]]]
    """Findings of the last refresh, with what the plugin says; empty after `up`."""
