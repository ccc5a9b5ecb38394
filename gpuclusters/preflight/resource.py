"""Whether hosts can be prepared, or are prepared: looks and never changes anything.

Before preparation one resource looks at the whole fleet, on which every change of every machine depends: an
engine stops at the first failure, and would leave some machines unseen and others half prepared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulumi

from gpuclusters.core.converge import StderrReporter
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Finding
from gpuclusters.host.model import HostConnection
from gpuclusters.preflight import decide
from gpuclusters.preflight.model import (
    Expects,
    FleetInputs,
    FleetMachine,
    HostFacts,
    PreflightInputs,
    Stage,
)
from gpuclusters.providers.reconciling import I, Live, Properties, ReconcilingProvider, host
from gpuclusters.providers.resource import ModelResource

AT_A_TIME = 64


class _LookingProvider(ReconcilingProvider[I]):
    """There is nothing to keep and nothing to remove; after a refresh with findings `up` looks again."""

    drifts = "findings"

    def facts(self, connection: HostConnection, expects: Expects) -> HostFacts:
        """What is there."""
        from gpuclusters.preflight.host import read_facts

        return read_facts(host(connection, self.ssh_key), expects.functions)


def _warn(where: str, verdict: decide.Verdict) -> None:
    for finding in verdict.warnings:
        StderrReporter().note(f"{where}: warning: {finding}")


class PreflightProvider(_LookingProvider[PreflightInputs]):
    """Fails with all findings at once."""

    model = PreflightInputs
    identity = frozenset({"connection.host", "stage"})

    def ensure(self, inputs: PreflightInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Look, and stop if anything is in the way; warnings are said and kept."""
        facts, verdict = self._judged(inputs)
        _warn(inputs.connection.target, verdict)
        if verdict.failures:
            raise decide.PreflightError(inputs.connection.target, inputs.stage, verdict.findings)
        return dict(decide.outputs(facts, inputs.expects, verdict))

    def observe(self, inputs: PreflightInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """Look again; what is in the way now is told by the outputs."""
        facts, verdict = self._judged(inputs)
        return Live(dict(decide.outputs(facts, inputs.expects, verdict)))

    def _judged(self, inputs: PreflightInputs) -> tuple[HostFacts, decide.Verdict]:
        facts = self.facts(inputs.connection, inputs.expects)
        return facts, decide.judge(facts, inputs.expects, inputs.stage)


class Preflight(ModelResource, module="gpu", name="Preflight"):
    """A host that was found fit for a stage: `bare` before preparation, `prepared` after it.

    What must not happen before all hosts are found fit depends on all of them.
    """

    provider = PreflightProvider
    kernel: pulumi.Output[str]
    qemu: pulumi.Output[str]
    """Version; empty if there is none yet."""
    libvirt: pulumi.Output[str]
    """Version; empty if there is none yet."""
    memory_gib: pulumi.Output[int]
    gpus: pulumi.Output[Mapping[str, Mapping[str, Any]]]
    """IOMMU group, driver and NUMA node by PCI address."""
    warnings: pulumi.Output[Sequence[Mapping[str, Any]]]
    """What works but will hurt: `{code, problem, path, level}` of each."""
    findings: pulumi.Output[Sequence[Mapping[str, Any]]]
    """What a refresh found in the way; empty after `up`."""


class FleetPreflightProvider(_LookingProvider[FleetInputs]):
    """Fails with the findings of all machines."""

    model = FleetInputs
    identity = frozenset({"cluster"})

    def ensure(self, inputs: FleetInputs, before: Properties) -> Properties:
        """Look at machines that are new, and stop if anything is in the way on any of them."""
        verdicts = self._verdicts(decide.to_look_at(inputs, before))
        for name, verdict in verdicts.items():
            _warn(name, verdict)
        if any(verdict.failures for verdict in verdicts.values()):
            raise decide.FleetError({n: v.failures for n, v in verdicts.items()})
        kept = {machine.connection.host for machine in inputs.machines}
        warnings = {n: found for n, found in before.get("warnings", {}).items() if n in kept}
        return {"warnings": {**warnings, **_warnings(verdicts)}, "findings": {}}

    def observe(self, inputs: FleetInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """Look at all machines again; what is in the way now is told by the outputs."""
        verdicts = self._verdicts(inputs.machines)
        findings = {
            n: [f.to_output() for f in v.failures] for n, v in verdicts.items() if v.failures
        }
        return Live({"warnings": _warnings(verdicts), "findings": findings})

    def _verdicts(self, machines: Sequence[FleetMachine]) -> Mapping[str, decide.Verdict]:
        with ThreadPoolExecutor(max(1, min(AT_A_TIME, len(machines)))) as pool:
            found = pool.map(self._verdict, machines)
            return {m.connection.host: v for m, v in zip(machines, found, strict=True)}

    def _verdict(self, machine: FleetMachine) -> decide.Verdict:
        try:
            facts = self.facts(machine.connection, machine.expects)
        except AdapterError as error:
            # One machine that does not answer hides nothing of the others.
            return decide.Verdict((Finding("preflight.not-read", str(error)),), ())
        return decide.judge(facts, machine.expects, Stage.BARE)


def _warnings(verdicts: Mapping[str, decide.Verdict]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    return {name: [f.to_output() for f in v.warnings] for name, v in verdicts.items()}


class FleetPreflight(ModelResource, module="gpu", name="FleetPreflight"):
    """All machines of a cluster, found fit before any was changed."""

    provider = FleetPreflightProvider
    warnings: pulumi.Output[Mapping[str, Sequence[Mapping[str, Any]]]]
    """By machine, what works but will hurt: `{code, problem, path, level}` of each."""
    findings: pulumi.Output[Mapping[str, Sequence[Mapping[str, Any]]]]
    """By machine, what a refresh found in the way; empty after `up`."""
