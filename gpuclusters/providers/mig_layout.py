"""How the GPUs of one node are divided by MIG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import mig_node
from gpuclusters.domain.gpu_operator import NAMESPACE
from gpuclusters.domain.mig_node import DEFAULT_TIMEOUT_SECONDS, MigInputs
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.kubernetes_objects import KubernetesObjects


class MigLayoutProvider(KeptProvider[MigInputs]):
    """Asks for a layout and waits until the node offers it; never while pods use its GPUs, unless told."""

    model = MigInputs
    identity = frozenset({"cluster", "node"})
    sensitive = frozenset({"kubeconfig"})

    def ensure(self, inputs: MigInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Label the node and wait."""
        from gpuclusters.adapters.here import StderrReporter, SystemClock

        cluster = _cluster(inputs)
        return mig_node.ensure(inputs, cluster, SystemClock(), StderrReporter()).outputs()

    def differences(self, inputs: MigInputs) -> Sequence[str]:
        """Of a layout that the node is asked for already."""
        return mig_node.differences(inputs, mig_node.observe(inputs, _cluster(inputs)))

    def observe(self, inputs: MigInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The layout as it is now."""
        state = mig_node.observe(inputs, _cluster(inputs))
        return Live(state.outputs(), {}) if state else None

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found another layout, one that failed, or other devices."""
        return mig_node.has_drifted(
            outputs, str(outputs.get("layout")), outputs.get("expected") or {}
        )

    def remove(self, inputs: MigInputs, before: Properties) -> None:  # noqa: ARG002
        """Give the label up."""
        from gpuclusters.adapters.here import StderrReporter

        mig_node.release(inputs, _cluster(inputs), StderrReporter())


def _cluster(inputs: MigInputs) -> KubernetesObjects:
    # Imported late: the client takes half a second to load, and a program only declares.
    from gpuclusters.adapters.kubernetes_objects import KubernetesObjects

    return KubernetesObjects(inputs.kubeconfig)


class MigLayout(Resource, module="gpu", name="MigLayout"):
    """A node whose GPUs are divided as declared."""

    current: pulumi.Output[str]
    """The layout that the node's label names."""
    state: pulumi.Output[str]
    """What the MIG manager says of it; `success` after `up`."""
    allocatable: pulumi.Output[Mapping[str, int]]
    """By resource, what the node offers."""

    def __init__(
        self,
        name: str,
        *,
        cluster: pulumi.Input[str],
        kubeconfig: pulumi.Input[str],
        node: pulumi.Input[str],
        layout: pulumi.Input[str],
        expected: pulumi.Input[Mapping[str, int]],
        evict: pulumi.Input[bool] = False,
        namespace: pulumi.Input[str] = NAMESPACE,
        timeout_seconds: pulumi.Input[float] = DEFAULT_TIMEOUT_SECONDS,
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a layout.

        Args:
            name: logical name.
            cluster: name of the cluster, part of the id.
            kubeconfig: of a user who may label nodes and read pods, and delete them to evict; kept as a
                secret.
            node: name of the node.
            layout: as the MIG manager's configuration calls it.
            expected: by resource, what the node must offer afterwards.
            evict: whether pods that use GPUs of the node are ended.
            namespace: of the operator.
            timeout_seconds: how long the MIG manager may take; with a reboot, many minutes.
            adopt: take over a layout that the node has already, if it is this one.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "cluster": cluster,
            "kubeconfig": pulumi.Output.secret(kubeconfig),
            "node": node,
            "layout": layout,
            "expected": expected,
            "evict": evict,
            "namespace": namespace,
            "timeout_seconds": timeout_seconds,
            "current": None,
            "state": None,
            "allocatable": None,
        }
        if adopt:
            properties["adopt"] = True
        super().__init__(name, properties, opts)
