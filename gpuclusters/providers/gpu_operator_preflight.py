"""Whether the GPU Operator can be installed in a cluster: looks at all of it and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from gpuclusters.domain import gpu_operator_preflight
from gpuclusters.domain.gpu_operator_preflight import OperatorPreflightInputs
from gpuclusters.providers.cluster import ClusterProvider
from gpuclusters.providers.kept import Live, Properties
from gpuclusters.providers.resource import ModelResource


class GpuOperatorPreflightProvider(ClusterProvider[OperatorPreflightInputs]):
    """Fails with all findings at once; there is nothing to keep and nothing to remove."""

    model = OperatorPreflightInputs

    def ensure(self, inputs: OperatorPreflightInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Stop if anything is in the way."""
        return gpu_operator_preflight.require(inputs, self.cluster(inputs)).outputs()

    def observe(self, inputs: OperatorPreflightInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """Look again; what is in the way now is told by the outputs."""
        return Live(gpu_operator_preflight.look(inputs, self.cluster(inputs)).outputs(), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found something in the way: the next `up` looks again, and stops."""
        return bool(outputs.get("findings"))


class GpuOperatorPreflight(ModelResource, module="gpu", name="GpuOperatorPreflight"):
    """A cluster that was found fit for the operator."""

    provider = GpuOperatorPreflightProvider

    findings: pulumi.Output[Sequence[str]]
    """What a refresh found in the way; empty after `up`."""
    installed: pulumi.Output[str]
    """Version of the operator that was there when it was looked; empty for none."""
