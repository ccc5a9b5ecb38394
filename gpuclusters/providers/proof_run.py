"""Proof that the GPUs of a cluster work; run again when driver, operator, nodes or level change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from gpuclusters.domain.proof_inputs import ProofInputs
from gpuclusters.domain.proof_kept import OUTPUTS
from gpuclusters.providers.kept import KeptProvider, Live, Properties

if TYPE_CHECKING:
    from gpuclusters.adapters.cluster_jobs import ClusterJobs


class ProofRunProvider(KeptProvider[ProofInputs]):
    """Made when everything passed. Nothing of it stays in the cluster."""

    model = ProofInputs
    identity = frozenset({"cluster"})
    sensitive = frozenset({"kubeconfig"})

    def ensure(self, inputs: ProofInputs, before: Properties) -> Properties:
        """Run the ladder, unless the same was shown before."""
        from gpuclusters.adapters import proof_programs
        from gpuclusters.adapters.here import StandardError, SystemClock, time_of_day
        from gpuclusters.domain import proof_kept, proof_run

        cluster = _cluster(inputs)
        return proof_kept.ensure(
            inputs.fingerprint,
            before,
            lambda: proof_run.run(
                inputs, cluster, SystemClock(), StandardError(), proof_programs.texts()
            ),
            place=cluster.place,
            called=f"proof {inputs.level}",
            at=time_of_day(),
        )

    def observe(self, inputs: ProofInputs, before: Properties) -> Live | None:
        """What was shown, and whether the nodes are still those that it was shown about."""
        from gpuclusters.domain import proof_kept, proof_run

        return Live(proof_kept.observe(before, proof_run.observe(inputs, _cluster(inputs))), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found another driver or other GPUs than those that were proven."""
        return bool(outputs.get("stale"))

    def remove(self, inputs: ProofInputs, before: Properties) -> None:
        """Nothing: a proof leaves nothing behind, and a cluster that is gone cannot be asked."""


def _cluster(inputs: ProofInputs) -> ClusterJobs:
    # Imported late: the client takes half a second to load, and a program only declares.
    from gpuclusters.adapters.cluster_jobs import ClusterJobs

    return ClusterJobs(inputs.kubeconfig)


class ProofRun(Resource, module="gpu", name="ProofRun"):
    """A cluster whose GPUs were shown to work."""

    proven: pulumi.Output[bool]
    """Whether every check passed; it does not exist otherwise."""
    at: pulumi.Output[str]
    """When, RFC 3339."""
    checks: pulumi.Output[int]
    """How many things were looked at."""
    evidence_sha256: pulumi.Output[str]
    """Over all of them with their numbers."""
    remarks: pulumi.Output[Sequence[str]]
    """What it does not show."""
    observed: pulumi.Output[Mapping[str, Mapping[str, str]]]
    """Driver and resources of each node as they were."""
    stale: pulumi.Output[Sequence[str]]
    """What is not so any more, as of the last refresh."""
    fingerprint: pulumi.Output[str]
    """Of what was asked for."""

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
        super().__init__(ProofRunProvider(), name, properties, opts)
