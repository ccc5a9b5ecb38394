"""Whether all machines of a cluster can be prepared: looks at all of them at once and changes nothing.

One resource for the whole fleet, on which every change of every machine depends: an engine stops at the
first failure, and would leave some machines unseen and others half prepared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulumi

from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Finding
from gpuclusters.domain import preflight
from gpuclusters.domain.preflight_expects import Stage
from gpuclusters.domain.preflight_finding import text
from gpuclusters.domain.preflight_fleet import FleetError, FleetInputs, FleetMachine, to_look_at
from gpuclusters.providers.hosts import host
from gpuclusters.providers.reconciling import Live, Properties, ReconcilingProvider
from gpuclusters.providers.resource import Resource

AT_A_TIME = 64


class FleetPreflightProvider(ReconcilingProvider[FleetInputs]):
    """Fails with the findings of all machines; there is nothing to keep and nothing to remove."""

    model = FleetInputs
    identity = frozenset({"cluster"})

    def ensure(self, inputs: FleetInputs, before: Properties) -> Properties:
        """Look at machines that are new, and stop if anything is in the way on any of them."""
        from gpuclusters.core.converge import StderrReporter

        machines = to_look_at(inputs, before)
        verdicts = self._verdicts(machines)
        for name, verdict in verdicts.items():
            for finding in () if isinstance(verdict, AdapterError) else verdict.warnings:
                StderrReporter().note(f"{name}: warning: {finding}")
        reports = [
            report for name, verdict in verdicts.items() if (report := _report(name, verdict))
        ]
        if reports:
            raise FleetError(reports, len(machines))
        kept = {m.connection.host for m in inputs.machines}
        warnings = {n: found for n, found in before.get("warnings", {}).items() if n in kept}
        return {
            "warnings": warnings | {name: _warnings(v) for name, v in verdicts.items()},
            "findings": {},
        }

    def observe(self, inputs: FleetInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """Look at all machines again; what is in the way now is told by the outputs."""
        verdicts = self._verdicts(inputs.machines)
        return Live(
            {
                "warnings": {name: _warnings(verdict) for name, verdict in verdicts.items()},
                "findings": {n: found for n, v in verdicts.items() if (found := _findings(v))},
            },
            {},
        )

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found something in the way: the next `up` looks again, and stops."""
        return bool(outputs.get("findings"))

    def remove(self, inputs: FleetInputs, before: Properties) -> None:
        """Nothing was made."""

    def _verdicts(
        self, machines: Sequence[FleetMachine]
    ) -> Mapping[str, preflight.Verdict | AdapterError]:
        if not machines:
            return {}
        with ThreadPoolExecutor(min(AT_A_TIME, len(machines))) as pool:
            found = pool.map(self._verdict, machines)
            return {m.connection.host: v for m, v in zip(machines, found, strict=True)}

    def _verdict(self, machine: FleetMachine) -> preflight.Verdict | AdapterError:
        from gpuclusters.adapters.host_facts import SshHostFacts

        try:
            reached = host(machine.connection, self.ssh_key)
            facts = SshHostFacts(reached).read(machine.expects.functions)
        except AdapterError as error:
            return error  # one machine that does not answer hides nothing of the others
        return preflight.judge(facts, machine.expects, Stage.BARE)


Verdict = preflight.Verdict | AdapterError


def _warnings(verdict: Verdict) -> list[dict[str, Any]]:
    return [] if isinstance(verdict, AdapterError) else [f.to_output() for f in verdict.warnings]


def _findings(verdict: Verdict) -> list[dict[str, Any]]:
    if isinstance(verdict, AdapterError):
        return [Finding("preflight.not-read", str(verdict)).to_output()]
    return [finding.to_output() for finding in verdict.failures]


def _report(name: str, verdict: Verdict) -> str:
    """All about one machine that cannot go on; empty if it can."""
    if isinstance(verdict, AdapterError):
        return f"{name}:\n  {verdict}"
    if not verdict.failures:
        return ""
    texts = "\n".join(text(finding) for finding in verdict.failures)
    return f"{name}:\n" + "\n".join(f"  {line}" for line in texts.splitlines())


class FleetPreflight(Resource, module="gpu", name="FleetPreflight"):
    """All machines of a cluster, found fit before any was changed."""

    warnings: pulumi.Output[Mapping[str, Sequence[Mapping[str, Any]]]]
    """By machine, what works but will hurt: `{code, problem, path, level}` of each."""
    findings: pulumi.Output[Mapping[str, Sequence[Mapping[str, Any]]]]
    """By machine, what a refresh found in the way; empty after `up`."""

    def __init__(
        self,
        name: str,
        *,
        cluster: str,
        machines: Sequence[pulumi.Input[Mapping[str, Any]]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the look.

        Args:
            name: logical name.
            cluster: its name, part of the id.
            machines: `{connection, expects}` of each; `expects` as plain values.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "cluster": cluster,
            "machines": list(machines),
            "warnings": None,
            "findings": None,
        }
        super().__init__(name, properties, opts)
