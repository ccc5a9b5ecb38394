"""A managed cluster of Google's: network, account, cluster, pools, and the proof that its GPUs work."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_gcp

from components.gke import GkeCluster
from components.kubernetes_objects import after
from gpuclusters.config import gcp, gke_plan
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.secrets import Secrets
from gpuclusters.core import scripts
from gpuclusters.proof.checks import CheckLevel
from gpuclusters.proof.manifests import LADDER_PROGRAMS
from gpuclusters.proof.model import WHOLE
from gpuclusters.proof.resource import TrainingProof
from stacks.hosts import Outputs


def build(config: GkeConfig, secrets: Secrets) -> Outputs:  # noqa: ARG001 (it has none)
    provider = pulumi_gcp.Provider("google-cloud", project=config.project, region=config.region)
    made = GkeCluster(
        config.name,
        pulumi.ResourceOptions(providers=[provider]),
        plan=gke_plan.plan(config, gcp.owner(pulumi.get_project(), pulumi.get_stack())),
        impersonate=pulumi.Config("gcp").get("impersonateServiceAccount") or "",
    )
    proof = TrainingProof(
        "proof",
        **gke_plan.arguments(config, CheckLevel(config.proof.rung)),
        # Which machines they are, so that others are proven anew.
        versions={name: pool.version for name, pool in made.pools.items()},
        kubeconfig=made.kubeconfig,
        programs=scripts.digest(*(f"proof/{program}" for program in LADDER_PROGRAMS)),
        opts=after(made),
    )
    return Outputs(
        kubeconfig=made.kubeconfig,
        nodes=proof.observed.apply(_nodes),
        proof={"rung": config.proof.rung, **proof.verdict()},
    )


def _nodes(observed: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Any]]:
    """The nodes with GPUs, whose names are Google's."""
    return {
        name: {"role": "worker", "allocatable": {WHOLE: int(facts[WHOLE])}}
        for name, facts in observed.items()
    }
