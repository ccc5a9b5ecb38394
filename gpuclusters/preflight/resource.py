"""Whether hosts can be prepared, or are prepared: looks and never changes anything.

Before preparation one resource looks at the whole fleet, on which every change of every machine depends: an
engine stops at the first failure, and would leave some machines unseen and others half prepared.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulumi

from gpuclusters.core.converge import Reporter
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Finding, Level
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
        from gpuclusters.preflight.host import read_facts

        return read_facts(host(connection, self.ssh_key), expects.functions)


def _warn(where: str, found: Sequence[Finding]) -> None:
    for finding in decide.of_level(Level.WARN, found):
        Reporter().note(f"{where}: warning: {finding}")


class PreflightProvider(_LookingProvider[PreflightInputs]):
    """Fails with all findings at once."""

    model = PreflightInputs
    identity = frozenset({"connection.host", "stage"})

    def ensure(self, inputs: PreflightInputs, before: Properties) -> Properties:  # noqa: ARG002
        target, (found, outputs) = inputs.connection.target, self._judged(inputs)
        _warn(target, found)
        if outputs["findings"]:
            raise decide.PreflightError(target, inputs.stage, found)
        return outputs

    def observe(self, inputs: PreflightInputs, before: Properties) -> Live | None:  # noqa: ARG002
        return Live(self._judged(inputs)[1])

    def _judged(self, inputs: PreflightInputs) -> tuple[Sequence[Finding], Properties]:
        facts = self.facts(inputs.connection, inputs.expects)
        found = decide.judge(facts, inputs.expects, inputs.stage)
        return found, decide.outputs(facts, inputs.expects, found)


class Preflight(ModelResource, module="gpu", name="Preflight"):
    """A host that was found fit for a stage: `bare` before preparation, `prepared` after it.

    What must not happen before all hosts are found fit depends on all of them.
    """

    provider = PreflightProvider
    kernel: pulumi.Output[str]
    qemu: pulumi.Output[str]
    libvirt: pulumi.Output[str]
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
        found = self._found(decide.to_look_at(inputs, before))
        for name, its in found.items():
            _warn(name, its)
        unfit = {name: decide.of_level(Level.BLOCK, its) for name, its in found.items()}
        if any(unfit.values()):
            raise decide.FleetError(unfit)
        kept = {machine.connection.host for machine in inputs.machines}
        warnings = {n: told for n, told in before.get("warnings", {}).items() if n in kept}
        return {"warnings": {**warnings, **_told(Level.WARN, found)}, "findings": {}}

    def observe(self, inputs: FleetInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """Look at all machines again; what is in the way now is told by the outputs."""
        found = self._found(inputs.machines)
        unfit = {name: told for name, told in _told(Level.BLOCK, found).items() if told}
        return Live({"warnings": _told(Level.WARN, found), "findings": unfit})

    def _found(self, machines: Sequence[FleetMachine]) -> Mapping[str, Sequence[Finding]]:
        with ThreadPoolExecutor(max(1, min(AT_A_TIME, len(machines)))) as pool:
            found = pool.map(self._judged, machines)
            return {m.connection.host: its for m, its in zip(machines, found, strict=True)}

    def _judged(self, machine: FleetMachine) -> Sequence[Finding]:
        try:
            facts = self.facts(machine.connection, machine.expects)
        except AdapterError as error:
            # One machine that does not answer hides nothing of the others.
            return (Finding("preflight.not-read", str(error)),)
        return decide.judge(facts, machine.expects, Stage.BARE)


def _told(level: Level, found: Mapping[str, Sequence[Finding]]) -> Mapping[str, Any]:
    return {name: decide.told(level, its) for name, its in found.items()}


class FleetPreflight(ModelResource, module="gpu", name="FleetPreflight"):
    """All machines of a cluster, found fit before any was changed."""

    provider = FleetPreflightProvider
    warnings: pulumi.Output[Mapping[str, Sequence[Mapping[str, Any]]]]
    """By machine, what works but will hurt: `{code, problem, path, level}` of each."""
    findings: pulumi.Output[Mapping[str, Sequence[Mapping[str, Any]]]]
    """By machine, what a refresh found in the way; empty after `up`."""
