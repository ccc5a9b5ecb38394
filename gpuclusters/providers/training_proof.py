"""Proof that a rootless cluster's GPUs work together: rungs 5 to 9, again when what it is about changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain.ladder_inputs import NAMESPACE, LadderInputs
from gpuclusters.domain.proof_kept import OUTPUTS
from gpuclusters.providers.proof_provider import ProofProvider, Shown
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.cluster_jobs import ClusterJobs
    from gpuclusters.domain.proof_run import Result


class TrainingProofProvider(ProofProvider[LadderInputs]):
    """Made when every rung held."""

    model = LadderInputs

    def called(self, inputs: LadderInputs) -> str:
        """What it is, in messages."""
        return f"the ladder up to rung {inputs.rung}"

    def show(self, inputs: LadderInputs, cluster: ClusterJobs) -> Result:
        """Climb."""
        from gpuclusters.adapters import proof_programs
        from gpuclusters.adapters.here import StderrReporter, SystemClock
        from gpuclusters.domain import ladder_run

        texts = proof_programs.texts(ladder_run.PROGRAMS)
        return ladder_run.run(inputs, cluster, SystemClock(), StderrReporter(), texts, strict=False)

    def look(self, inputs: LadderInputs, cluster: ClusterJobs) -> Mapping[str, Mapping[str, str]]:
        """Each node as it is: which one, its kubelet, its GPUs."""
        from gpuclusters.domain import ladder_run

        return ladder_run.observe(inputs, cluster)


class TrainingProof(Shown, Resource, module="gpu", name="TrainingProof"):
    """A rootless cluster whose GPUs were shown to work together."""

    def __init__(
        self,
        name: str,
        *,
        cluster: pulumi.Input[str],
        kubeconfig: pulumi.Input[str],
        rung: pulumi.Input[int],
        nodes: pulumi.Input[Sequence[Mapping[str, Any]]],
        namespace: pulumi.Input[str] = NAMESPACE,
        smoke: pulumi.Input[Mapping[str, Any]] | None = None,
        vector_add: pulumi.Input[Mapping[str, Any]] | None = None,
        training: pulumi.Input[Mapping[str, Any]] | None = None,
        tolerations: pulumi.Input[Sequence[str]] = (),
        versions: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None,
        programs: pulumi.Input[str] | None = None,
        settle_seconds: pulumi.Input[int] = 600,
        timeout_seconds: pulumi.Input[int] = 3600,
        simulated: pulumi.Input[bool] = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a proof.

        Args:
            name: logical name.
            cluster: name of the cluster, part of the id.
            kubeconfig: of a user who may read nodes and make namespaces, Jobs, StatefulSets and
                Services; kept as a secret.
            rung: the highest that is climbed, 5 to 9.
            nodes: as `LadderNode`: name and gpus.
            namespace: where pods run; made, and removed again, unless it is there.
            smoke: as `Smoke`, for rung 6.
            vector_add: as `VectorAdd`, for rung 8.
            training: as `Training`, for rung 9.
            tolerations: keys of taints beside `nvidia.com/gpu`.
            versions: of what the GPUs depend on; another one climbs again.
            programs: digest of the programs of scripts/proof.
            settle_seconds: how long nodes may take to be Ready and to offer their GPUs.
            timeout_seconds: for all rungs together.
            simulated: whether the machines are a lab's.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "cluster": cluster,
            "kubeconfig": pulumi.Output.secret(kubeconfig),
            "rung": rung,
            "nodes": nodes,
            "namespace": namespace,
            "smoke": smoke,
            **({"vector_add": vector_add} if vector_add is not None else {}),
            "training": training,
            "tolerations": tolerations,
            "versions": versions or {},
            "programs": programs,
            "settle_seconds": settle_seconds,
            "timeout_seconds": timeout_seconds,
            "simulated": simulated,
            **dict.fromkeys(OUTPUTS),
        }
        super().__init__(name, properties, opts)
