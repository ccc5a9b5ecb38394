"""From the section of a `usernetes` cluster to what its ladder is asked for. Pure."""

from __future__ import annotations

from typing import Any

from gpuclusters.config import usernetes_plan
from gpuclusters.config.lab import uses_lab
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.domain.ladder import Rung


def arguments(config: UsernetesConfig, highest: Rung) -> dict[str, Any]:
    """The inputs of the ladder, and the arguments of its component, but the kubeconfig.

    Args:
        config: the section.
        highest: the last rung that is climbed; the training is described for rung 9 alone.
    """
    chosen, taking = usernetes_plan.versions(config), usernetes_plan.schedulable(config)
    plan = usernetes_plan.training(config) if highest is Rung.TRAINING else None
    training = plan and {
        "image": plan.image,
        "pods": plan.pods,
        "gpus_per_pod": plan.gpus_per_pod,
        "epochs": plan.epochs,
        "batch_size": plan.batch_size,
        "accuracy_floor": plan.accuracy_floor,
        "data_path": plan.data_path,
        "data_claim": plan.claim,
        "timeout_seconds": plan.timeout_seconds,
    }
    return {
        "cluster": config.name,
        "rung": highest.value,
        "nodes": [
            {"name": node.name, "gpus": node.gpus, "takes_pods": node.name in taking}
            for node in usernetes_plan.nodes(config)
        ],
        "namespace": config.proof.namespace,
        "training": training,
        "versions": {
            "driver": chosen.driver,
            "container-toolkit": chosen.container_toolkit,
            "device-plugin": chosen.device_plugin,
            "kubernetes": chosen.kubernetes,
        },
        "timeout_seconds": config.timeouts.proof_seconds,
        "simulated": uses_lab(config),
    }
