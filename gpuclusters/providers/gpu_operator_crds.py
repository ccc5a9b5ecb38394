"""The definitions of the GPU Operator's chart, applied before its release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import gpu_operator_crds
from gpuclusters.domain.gpu_operator_crds import CrdInputs
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.kubernetes_objects import KubernetesObjects


class GpuOperatorCrdsProvider(KeptProvider[CrdInputs]):
    """Applies the definitions of one chart version, with force; removes none."""

    model = CrdInputs
    identity = frozenset({"cluster"})
    sensitive = frozenset({"kubeconfig"})

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
        applied = gpu_operator_crds.apply(wanted, _cluster(inputs), SystemClock())
        return applied.outputs() | {"marks": gpu_operator_crds.marks(wanted)}

    def observe(self, inputs: CrdInputs, before: Properties) -> Live | None:
        """Which of them are still as they were applied."""
        applied = gpu_operator_crds.observe(
            before.get("names") or (), before.get("marks") or {}, _cluster(inputs)
        )
        if applied is None:
            return None
        return Live(applied.outputs() | {"marks": before.get("marks") or {}}, {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found a definition replaced or gone."""
        return bool(outputs.get("stale"))

    def remove(self, inputs: CrdInputs, before: Properties) -> None:
        """Nothing: with a definition all its objects would go, those of others too."""


def _cluster(inputs: CrdInputs) -> KubernetesObjects:
    # Imported late: the client takes half a second to load, and a program only declares.
    from gpuclusters.adapters.kubernetes_objects import KubernetesObjects

    return KubernetesObjects(inputs.kubeconfig)


class GpuOperatorCrds(Resource, module="gpu", name="GpuOperatorCrds"):
    """The operator's CustomResourceDefinitions, of the version that the release will be."""

    names: pulumi.Output[Sequence[str]]
    """What was applied."""
    stale: pulumi.Output[Sequence[str]]
    """What a refresh found replaced or gone; empty after `up`."""

    def __init__(
        self,
        name: str,
        *,
        cluster: pulumi.Input[str],
        kubeconfig: pulumi.Input[str],
        reference: pulumi.Input[str],
        version: pulumi.Input[str] = "",
        repository: pulumi.Input[str] = "",
        content: pulumi.Input[str] = "",
        sha256: pulumi.Input[str] = "",
        with_nfd: pulumi.Input[bool] = True,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the definitions.

        Args:
            name: logical name.
            cluster: name of the cluster, part of the id.
            kubeconfig: of a user who may write CustomResourceDefinitions; kept as a secret.
            reference: a folder, an archive, or a name within `repository`.
            version: release of the chart.
            repository: address of a chart repository.
            content: digest of a folder or archive on this machine.
            sha256: what the archive must be; empty: as the index says.
            with_nfd: whether the release brings node feature discovery along.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "cluster": cluster,
            "kubeconfig": pulumi.Output.secret(kubeconfig),
            "reference": reference,
            "version": version,
            "repository": repository,
            "content": content,
            "sha256": sha256,
            "with_nfd": with_nfd,
            "names": None,
            "stale": None,
            "marks": None,
        }
        super().__init__(name, properties, opts)
