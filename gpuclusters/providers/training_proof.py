"""Proof that a rootless cluster's GPUs work together: rungs 5 to 9, again when what it is about changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from gpuclusters.domain.ladder_inputs import NAMESPACE, LadderInputs
from gpuclusters.domain.proof_kept import OUTPUTS
from gpuclusters.providers.kept import KeptProvider, Live, Properties

if TYPE_CHECKING:
    from gpuclusters.adapters.cluster_jobs import ClusterJobs


class TrainingProofProvider(KeptProvider[LadderInputs]):
    """Made when every rung held. Nothing of it stays in the cluster."""

    model = LadderInputs
    identity = frozenset({"cluster"})
    sensitive = frozenset({"kubeconfig"})

    def ensure(self, inputs: LadderInputs, before: Properties) -> Properties:
        """Climb, unless the same was shown before."""
        from gpuclusters.adapters import proof_programs
        from gpuclusters.adapters.here import StandardError, SystemClock, time_of_day
        from gpuclusters.domain import ladder_run, proof_kept

        cluster = _cluster(inputs)
        return proof_kept.ensure(
            inputs.fingerprint,
            before,
            lambda: ladder_run.run(
                inputs,
                cluster,
                SystemClock(),
                StandardError(),
                proof_programs.texts(ladder_run.PROGRAMS),
                strict=False,
            ),
            place=cluster.place,
            called=f"the ladder up to rung {inputs.rung}",
            at=time_of_day(),
        )

    def observe(self, inputs: LadderInputs, before: Properties) -> Live | None:
        """What was shown, and whether the nodes are still those that it was shown about."""
        from gpuclusters.domain import ladder_run, proof_kept

        return Live(proof_kept.observe(before, ladder_run.observe(inputs, _cluster(inputs))), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found other nodes, kubelets or GPUs than those that were proven."""
        return bool(outputs.get("stale"))

    def remove(self, inputs: LadderInputs, before: Properties) -> None:
        """Nothing: a proof leaves nothing behind, and a cluster that is gone cannot be asked."""


def _cluster(inputs: LadderInputs) -> ClusterJobs:
    # Imported late: the client takes half a second to load, and a program only declares.
    from gpuclusters.adapters.cluster_jobs import ClusterJobs

    return ClusterJobs(inputs.kubeconfig)


class TrainingProof(Resource, module="gpu", name="TrainingProof"):
    """A rootless cluster whose GPUs were shown to work together."""

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
    """Each node as it was: which one, its kubelet, its GPUs."""
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
        super().__init__(TrainingProofProvider(), name, properties, opts)
