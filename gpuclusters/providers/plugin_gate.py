"""The gate behind NVIDIA's device plugin: on every node of a rootless cluster, as many GPUs as declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import plugin_gate
from gpuclusters.domain.plugin_gate import DEFAULT_TIMEOUT_SECONDS, GateInputs
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.cluster_jobs import ClusterJobs


class PluginGateProvider(KeptProvider[GateInputs]):
    """Made when all nodes offer their GPUs; tells by a refresh which do no more, and why."""

    model = GateInputs
    identity = frozenset({"cluster"})
    sensitive = frozenset({"kubeconfig"})

    def ensure(self, inputs: GateInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Wait."""
        from gpuclusters.adapters.here import StderrReporter, SystemClock

        return dict(plugin_gate.wait(inputs, _cluster(inputs), SystemClock(), StderrReporter()))

    def observe(self, inputs: GateInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The GPUs as they are offered now."""
        return Live(plugin_gate.look(inputs, _cluster(inputs)), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found a node that does not offer its GPUs."""
        return bool(outputs.get("missing"))

    def remove(self, inputs: GateInputs, before: Properties) -> None:
        """Nothing was made."""


def _cluster(inputs: GateInputs) -> ClusterJobs:
    # Imported late: the client takes half a second to load, and a program only declares.
    from gpuclusters.adapters.cluster_jobs import ClusterJobs

    return ClusterJobs(inputs.kubeconfig)


class PluginGate(Resource, module="gpu", name="PluginGate"):
    """A gate: what depends on it finds the GPUs that were declared."""

    allocatable: pulumi.Output[Mapping[str, int]]
    """GPUs by node, as offered."""
    missing: pulumi.Output[Sequence[str]]
    """What a refresh found missing, with what the plugin says; empty after `up`."""

    def __init__(
        self,
        name: str,
        *,
        cluster: pulumi.Input[str],
        kubeconfig: pulumi.Input[str],
        expected: pulumi.Input[Mapping[str, int]],
        timeout_seconds: pulumi.Input[int] = DEFAULT_TIMEOUT_SECONDS,
        triggers: pulumi.Input[Sequence[pulumi.Input[str]]] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the gate.

        Args:
            name: logical name.
            cluster: name of the cluster, part of the id.
            kubeconfig: of a user who may read nodes, and pods with their logs in kube-system; kept as a
                secret.
            expected: GPUs by node.
            timeout_seconds: how long to wait, all nodes together.
            triggers: whatever makes another look necessary, such as the image of the plugin.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "cluster": cluster,
            "kubeconfig": pulumi.Output.secret(kubeconfig),
            "expected": expected,
            "timeout_seconds": timeout_seconds,
            "triggers": triggers,
            "allocatable": None,
            "missing": None,
        }
        super().__init__(name, properties, opts)
