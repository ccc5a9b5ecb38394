"""Whether the GPU Operator can be installed in a cluster: looks at all of it and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import gpu_operator_preflight
from gpuclusters.domain.gpu_operator_preflight import OperatorPreflightInputs
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.kubernetes_objects import KubernetesObjects


class GpuOperatorPreflightProvider(KeptProvider[OperatorPreflightInputs]):
    """Fails with all findings at once; there is nothing to keep and nothing to remove."""

    model = OperatorPreflightInputs
    identity = frozenset({"cluster"})
    sensitive = frozenset({"kubeconfig"})

    def ensure(self, inputs: OperatorPreflightInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Stop if anything is in the way."""
        return gpu_operator_preflight.require(inputs, _cluster(inputs)).outputs()

    def observe(self, inputs: OperatorPreflightInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """Look again; what is in the way now is told by the outputs."""
        return Live(gpu_operator_preflight.look(inputs, _cluster(inputs)).outputs(), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found something in the way: the next `up` looks again, and stops."""
        return bool(outputs.get("findings"))

    def remove(self, inputs: OperatorPreflightInputs, before: Properties) -> None:
        """Nothing was made."""


def _cluster(inputs: OperatorPreflightInputs) -> KubernetesObjects:
    # Imported late: the client takes half a second to load, and a program only declares.
    from gpuclusters.adapters.kubernetes_objects import KubernetesObjects

    return KubernetesObjects(inputs.kubeconfig)


class GpuOperatorPreflight(Resource, module="gpu", name="GpuOperatorPreflight"):
    """A cluster that was found fit for the operator."""

    findings: pulumi.Output[Sequence[str]]
    """What a refresh found in the way; empty after `up`."""
    installed: pulumi.Output[str]
    """Version of the operator that was there when it was looked; empty for none."""

    def __init__(
        self,
        name: str,
        *,
        cluster: pulumi.Input[str],
        kubeconfig: pulumi.Input[str],
        version: pulumi.Input[str] = "",
        nodes: pulumi.Input[Sequence[str]] = (),
        namespace: pulumi.Input[str],
        with_nfd: pulumi.Input[bool] = True,
        cdi: pulumi.Input[bool] = True,
        tolerations: pulumi.Input[Sequence[Mapping[str, Any]]] = (),
        nfd_tolerations: pulumi.Input[Sequence[Mapping[str, Any]]] = (),
        values_digest: pulumi.Input[str] = "",
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the look.

        Args:
            name: logical name.
            cluster: name of the cluster, part of the id.
            kubeconfig: of a user who may read all that is looked at; kept as a secret.
            version: the release that will be installed; empty where only the chart knows.
            nodes: nodes that must get GPUs.
            namespace: of the release.
            with_nfd: whether the release brings node feature discovery along.
            cdi: whether devices are handed out by CDI, which needs containerd 2.0.
            tolerations: of the operands.
            nfd_tolerations: of the workers of node feature discovery.
            values_digest: of the chart's values, so that every upgrade is looked at.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "cluster": cluster,
            "kubeconfig": pulumi.Output.secret(kubeconfig),
            "version": version,
            "nodes": nodes,
            "namespace": namespace,
            "with_nfd": with_nfd,
            "cdi": cdi,
            "tolerations": tolerations,
            "nfd_tolerations": nfd_tolerations,
            "values_digest": values_digest,
            "findings": None,
            "installed": None,
        }
        super().__init__(name, properties, opts)
