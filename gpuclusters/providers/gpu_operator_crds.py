"""The definitions of the GPU Operator's chart, applied before its release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi

from gpuclusters.domain import gpu_operator_crds
from gpuclusters.domain.gpu_operator_crds import CrdInputs
from gpuclusters.providers.cluster import ClusterProvider
from gpuclusters.providers.kept import Live, Properties
from gpuclusters.providers.resource import ModelResource


class GpuOperatorCrdsProvider(ClusterProvider[CrdInputs]):
    """Applies the definitions of one chart version, with force; removes none."""

    model = CrdInputs

    def ensure(self, inputs: CrdInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Get the chart, apply its definitions, wait until they are served."""
        from gpuclusters.adapters.gpu_operator_chart import crd_documents
        from gpuclusters.adapters.here import SystemClock

        documents = crd_documents(
            inputs.reference,
            version=inputs.version,
            repository=inputs.repository,
            sha256=inputs.sha256,
        )
        wanted = gpu_operator_crds.definitions(documents, with_nfd=inputs.with_nfd)
        applied = gpu_operator_crds.apply(wanted, self.cluster(inputs), SystemClock())
        return applied.outputs() | {"marks": gpu_operator_crds.marks(wanted)}

    def observe(self, inputs: CrdInputs, before: Properties) -> Live | None:
        """Which of them are still as they were applied."""
        applied = gpu_operator_crds.observe(
            before.get("names") or (), before.get("marks") or {}, self.cluster(inputs)
        )
        if applied is None:
            return None
        return Live(applied.outputs() | {"marks": before.get("marks") or {}}, {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found a definition replaced or gone."""
        return bool(outputs.get("stale"))

    def remove(self, inputs: CrdInputs, before: Properties) -> None:
        """Nothing: with a definition all its objects would go, those of others too."""


class GpuOperatorCrds(ModelResource, module="gpu", name="GpuOperatorCrds"):
    """The operator's CustomResourceDefinitions, of the version that the release will be."""

    provider = GpuOperatorCrdsProvider

    names: pulumi.Output[Sequence[str]]
    """What was applied."""
    marks: pulumi.Output[Mapping[str, str]]
    """Digest of each, as it was applied."""
    stale: pulumi.Output[Sequence[str]]
    """What a refresh found replaced or gone; empty after `up`."""
