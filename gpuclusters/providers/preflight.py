"""Whether a host can be prepared, or is prepared: looks and never changes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from gpuclusters.domain import preflight
from gpuclusters.domain.preflight_expects import PreflightInputs
from gpuclusters.domain.preflight_facts import HostFacts
from gpuclusters.providers.hosts import host
from gpuclusters.providers.reconciling import Live, Properties, ReconcilingProvider
from gpuclusters.providers.resource import Resource


class PreflightProvider(ReconcilingProvider[PreflightInputs]):
    """Fails with all findings at once; there is nothing to keep and nothing to remove."""

    model = PreflightInputs
    identity = frozenset({"connection.host", "stage"})

    def ensure(self, inputs: PreflightInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Look, and stop if anything is in the way; warnings are said and kept."""
        from gpuclusters.core.converge import StderrReporter

        facts = self._facts(inputs)
        verdict = preflight.judge(facts, inputs.expects, inputs.stage)
        for finding in verdict.warnings:
            StderrReporter().note(f"{inputs.connection.target}: warning: {finding}")
        if verdict.failures:
            raise preflight.PreflightError(inputs.connection.target, inputs.stage, verdict.findings)
        return dict(preflight.outputs(facts, inputs.expects, verdict))

    def observe(self, inputs: PreflightInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """Look again; what is in the way now is told by the outputs."""
        facts = self._facts(inputs)
        verdict = preflight.judge(facts, inputs.expects, inputs.stage)
        return Live(dict(preflight.outputs(facts, inputs.expects, verdict)), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found something in the way: the next `up` looks again, and stops."""
        return bool(outputs.get("findings"))

    def remove(self, inputs: PreflightInputs, before: Properties) -> None:
        """Nothing was made."""

    def _facts(self, inputs: PreflightInputs) -> HostFacts:
        from gpuclusters.adapters.host_facts import SshHostFacts

        reached = host(inputs.connection, self.ssh_key)
        return SshHostFacts(reached).read(inputs.expects.functions)


class Preflight(Resource, module="gpu", name="Preflight"):
    """A host that was found fit for a stage: `bare` before preparation, `prepared` after it."""

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

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        stage: str,
        expects: pulumi.Input[Mapping[str, Any]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the look.

        Args:
            name: logical name.
            connection: how the host is reached.
            stage: `bare` or `prepared`.
            expects: `Expects` as plain values (`expects_of(...).model_dump(mode="json")`).
            opts: resource options. What must not happen before all hosts are found fit depends on
                all of them.
        """
        properties: dict[str, Any] = {
            "connection": connection,
            "stage": stage,
            "expects": expects,
            "kernel": None,
            "qemu": None,
            "libvirt": None,
            "memory_gib": None,
            "gpus": None,
            "warnings": None,
            "findings": None,
        }
        super().__init__(name, properties, opts)
