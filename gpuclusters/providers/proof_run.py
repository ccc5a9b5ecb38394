"""Proof that the GPUs of a cluster work; run again when driver, operator, nodes or level change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain.proof_inputs import ProofInputs
from gpuclusters.domain.proof_kept import OUTPUTS
from gpuclusters.providers.proof_provider import ProofProvider, Shown
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.cluster_jobs import ClusterJobs
    from gpuclusters.domain.proof_run import Result


class ProofRunProvider(ProofProvider[ProofInputs]):
    """Made when everything passed."""

    model = ProofInputs

    def called(self, inputs: ProofInputs) -> str:
        """What it is, in messages."""
        return f"proof {inputs.level}"

    def show(self, inputs: ProofInputs, cluster: ClusterJobs) -> Result:
        """Run all checks up to the level."""
        from gpuclusters.adapters import proof_programs
        from gpuclusters.adapters.here import StderrReporter, SystemClock
        from gpuclusters.domain import proof_run

        return proof_run.run(
            inputs, cluster, SystemClock(), StderrReporter(), proof_programs.texts()
        )

    def look(self, inputs: ProofInputs, cluster: ClusterJobs) -> Mapping[str, Mapping[str, str]]:
        """Driver and resources of each node as they are."""
        from gpuclusters.domain import proof_run

        return proof_run.observe(inputs, cluster)


class ProofRun(Shown, Resource, module="gpu", name="ProofRun"):
    """A cluster whose GPUs were shown to work."""

    def __init__(
        self,
        name: str,
        *,
        cluster: pulumi.Input[str],
        kubeconfig: pulumi.Input[str],
        level: pulumi.Input[str],
        nodes: pulumi.Input[Sequence[Mapping[str, Any]]],
        tests: Mapping[str, Mapping[str, Any]],
        namespace: pulumi.Input[str] = "gpu-proof",
        operator_namespace: pulumi.Input[str] = "gpu-operator",
        prometheus: pulumi.Input[Mapping[str, Any]] | None = None,
        tolerations: pulumi.Input[Sequence[str]] = (),
        driver: pulumi.Input[str] | None = None,
        operator: pulumi.Input[str] | None = None,
        programs: pulumi.Input[str] | None = None,
        timeout_seconds: pulumi.Input[int] = 7200,
        simulated: pulumi.Input[bool] = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a proof.

        Args:
            name: logical name.
            cluster: name of the cluster, part of the id.
            kubeconfig: of a user who may make Jobs and read the operator's namespace; kept as a secret.
            level: L0 to L4.
            nodes: as `ProofNode`: name, resources, product, mig, shared.
            tests: how each test is run, by name: `matmul`, `diagnostics`, `load`, `burn`, `collective`.
            namespace: where Jobs run; made, and removed again, unless it is there.
            operator_namespace: of the GPU operator.
            prometheus: namespace, service and port of the Prometheus that must see the load.
            tolerations: keys of taints beside `nvidia.com/gpu`.
            driver: version of the driver.
            operator: version of the operator.
            programs: digest of scripts/proof.
            timeout_seconds: for all tests on all nodes together.
            simulated: whether the GPUs are a lab's.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "cluster": cluster,
            "kubeconfig": pulumi.Output.secret(kubeconfig),
            "level": level,
            "nodes": nodes,
            **tests,
            "namespace": namespace,
            "operator_namespace": operator_namespace,
            "prometheus": prometheus,
            "tolerations": tolerations,
            "driver": driver,
            "operator": operator,
            "programs": programs,
            "timeout_seconds": timeout_seconds,
            "simulated": simulated,
            **dict.fromkeys(OUTPUTS),
        }
        super().__init__(name, properties, opts)
