"""The gate behind NVIDIA's device plugin: on every node of a rootless cluster, as many GPUs as declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from gpuclusters.domain import plugin_gate
from gpuclusters.domain.plugin_gate import GateInputs
from gpuclusters.providers.cluster import ClusterProvider
from gpuclusters.providers.kept import Live, Properties
from gpuclusters.providers.resource import ModelResource


class PluginGateProvider(ClusterProvider[GateInputs]):
    """Made when all nodes offer their GPUs; tells by a refresh which do no more, and why."""

    model = GateInputs

    def ensure(self, inputs: GateInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Wait."""
        from gpuclusters.adapters.here import StderrReporter, SystemClock

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
