"""The definitions of the GPU Operator's chart, applied before its release."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pulumi
from pydantic import Field

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.core.custom_resource import ClusterInputs
from gpuclusters.core.finding import Refused
from gpuclusters.gpu_operator import preflight, readiness
from gpuclusters.gpu_operator.mig_node import MigInputs, MigNode
from gpuclusters.gpu_operator.preflight import OperatorPreflightInputs
from gpuclusters.gpu_operator.readiness import GateInputs, ReadinessInputs
from gpuclusters.providers.reconciling import (
    ClusterProvider,
    ConvergingProvider,
    Live,
    Properties,
)
from gpuclusters.providers.resource import ConvergingResource, ModelResource

Gate = TypeVar("Gate", bound=GateInputs)


class CrdInputs(ClusterInputs):
    called = "gpu-operator-crds"

    reference: str = Field(min_length=1)
    """Chart: a folder, an archive, or a name within `repository`."""
    version: str = ""
    """Release of the chart; may be empty for a folder or archive."""
    repository: str = ""
    content: str = ""
    """Digest of a folder or archive, so that another chart at the same path is another input."""
    sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    """What the archive must be; empty: as the repository's index says."""
    with_nfd: bool = True


class GpuOperatorCrdsProvider(ClusterProvider[CrdInputs]):
    """Applies the definitions of one chart version, with force; removes none."""

    model = CrdInputs
    drifts = "stale"

    def ensure(self, inputs: CrdInputs, before: Properties) -> Properties:  # noqa: ARG002
        from gpuclusters.gpu_operator import crds

        documents = crds.crd_documents(
            inputs.reference,
            version=inputs.version,
            repository=inputs.repository,
            sha256=inputs.sha256,
        )
        wanted = crds.definitions(documents, with_nfd=inputs.with_nfd)
        return crds.apply(wanted, self.cluster(inputs), Clock(), Reporter())

    def observe(self, inputs: CrdInputs, before: Properties) -> Live | None:
        from gpuclusters.gpu_operator import crds

        applied = crds.observe(before, self.cluster(inputs))
        return None if applied is None else Live(applied, {})

    def remove(self, inputs: CrdInputs, before: Properties) -> None:
        """Nothing: with a definition all its objects would go, those of others too."""


class GpuOperatorCrds(ModelResource, module="gpu", name="GpuOperatorCrds"):
    """The operator's CustomResourceDefinitions, of the version that the release will be."""

    provider = GpuOperatorCrdsProvider

    names: pulumi.Output[Sequence[str]]
    marks: pulumi.Output[Mapping[str, str]]
    """Digest of each, as it was applied."""
    stale: pulumi.Output[Sequence[str]]
    """What a refresh found replaced or gone; empty after `up`."""


class GpuOperatorPreflightProvider(ClusterProvider[OperatorPreflightInputs]):
    """Fails with all findings at once; there is nothing to keep and nothing to remove."""

    model = OperatorPreflightInputs
    drifts = "findings"

    def ensure(self, inputs: OperatorPreflightInputs, before: Properties) -> Properties:  # noqa: ARG002
        cluster = self.cluster(inputs)
        live = preflight.read(inputs, cluster)
        if found := preflight.findings(live, inputs):
            raise Refused(cluster.target, found)
        return {"findings": [], "installed": live.installed}

    def observe(self, inputs: OperatorPreflightInputs, before: Properties) -> Live | None:  # noqa: ARG002
        live = preflight.read(inputs, self.cluster(inputs))
        found = [finding.to_output() for finding in preflight.findings(live, inputs)]
        return Live({"findings": found, "installed": live.installed})


class GpuOperatorPreflight(ModelResource, module="gpu", name="GpuOperatorPreflight"):
    """A cluster that was found fit for the operator."""

    provider = GpuOperatorPreflightProvider

    findings: pulumi.Output[Sequence[Mapping[str, Any]]]
    """What a refresh found in the way; empty after `up`."""
    installed: pulumi.Output[str]
    """Version of the operator that was there when it was looked; empty for none."""


class GateProvider(ClusterProvider[Gate]):
    """Made when nothing is missing; tells by a refresh what is missing since."""

    drifts = "drift"

    def ensure(self, inputs: Gate, before: Properties) -> Properties:  # noqa: ARG002
        return readiness.wait(inputs, self.cluster(inputs), Clock(), Reporter())

    def observe(self, inputs: Gate, before: Properties) -> Live | None:  # noqa: ARG002
        return Live(inputs.look(self.cluster(inputs))[0])


class GpuReadinessProvider(GateProvider[ReadinessInputs]):
    """Of all GPUs that the operator makes ready."""

    model = ReadinessInputs

    def cluster(self, inputs: ReadinessInputs) -> Any:
        """One that says at once when its API server is away."""
        from gpuclusters.kube.objects import KubernetesObjects

        return KubernetesObjects(inputs.kubeconfig)


class GpuReadiness(ModelResource, module="gpu", name="GpuReadiness"):
    """A gate: what depends on it finds the GPUs that were declared."""

    provider = GpuReadinessProvider

    allocatable: pulumi.Output[Mapping[str, Mapping[str, int]]]
    """By node and resource, what the node offers."""
    reason: pulumi.Output[str]
    """Of the ClusterPolicy's condition; `Reconciled` after `up`."""
    drift: pulumi.Output[Sequence[Mapping[str, Any]]]
    """Findings of the last refresh: what is not ready, with what blocks it; empty after `up`."""


class MigLayoutProvider(ConvergingProvider[MigInputs], ClusterProvider[MigInputs]):
    """Asks for a layout and waits until the node offers it; never while pods use its GPUs, unless told."""

    model = MigInputs
    identity = frozenset({"cluster", "node"})
    changes_machine = False

    def capability(self, inputs: MigInputs, before: Properties) -> MigNode:  # noqa: ARG002
        return MigNode(inputs, self.cluster(inputs), Clock(), Reporter())


class MigLayout(ConvergingResource, module="gpu", name="MigLayout"):
    """A node whose GPUs are divided as declared."""

    provider = MigLayoutProvider

    current: pulumi.Output[str]
    """The layout that the node's label names."""
    state: pulumi.Output[str]
    """What the MIG manager says of it; `success` after `up`."""
    allocatable: pulumi.Output[Mapping[str, int]]
    """By resource, what the node offers."""
