"""How the GPUs of one node are divided by MIG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi

from gpuclusters.domain import mig_node
from gpuclusters.domain.mig_node import MigInputs
from gpuclusters.providers.cluster import ClusterProvider
from gpuclusters.providers.kept import Live, Properties
from gpuclusters.providers.resource import ModelResource


class MigLayoutProvider(ClusterProvider[MigInputs]):
    """Asks for a layout and waits until the node offers it; never while pods use its GPUs, unless told."""

    model = MigInputs
    identity = frozenset({"cluster", "node"})

    def ensure(self, inputs: MigInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Label the node and wait."""
        from gpuclusters.adapters.here import StderrReporter, SystemClock

        cluster = self.cluster(inputs)
        return mig_node.ensure(inputs, cluster, SystemClock(), StderrReporter()).outputs()

    def differences(self, inputs: MigInputs) -> Sequence[str]:
        """Of a layout that the node is asked for already."""
        return mig_node.differences(inputs, mig_node.observe(inputs, self.cluster(inputs)))

    def observe(self, inputs: MigInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The layout as it is now."""
        state = mig_node.observe(inputs, self.cluster(inputs))
        return Live(state.outputs(), {}) if state else None

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found another layout, one that failed, or other devices."""
        return mig_node.has_drifted(
            outputs, str(outputs.get("layout")), outputs.get("expected") or {}
        )

    def remove(self, inputs: MigInputs, before: Properties) -> None:  # noqa: ARG002
        """Give the label up."""
        from gpuclusters.adapters.here import StderrReporter

        mig_node.release(inputs, self.cluster(inputs), StderrReporter())


class MigLayout(ModelResource, module="gpu", name="MigLayout"):
    """A node whose GPUs are divided as declared."""

    provider = MigLayoutProvider

    current: pulumi.Output[str]
    """The layout that the node's label names."""
    state: pulumi.Output[str]
    """What the MIG manager says of it; `success` after `up`."""
    allocatable: pulumi.Output[Mapping[str, int]]
    """By resource, what the node offers."""
