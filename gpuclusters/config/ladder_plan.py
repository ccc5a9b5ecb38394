"""From the section of a `usernetes` cluster to what its ladder is asked for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpuclusters.config import usernetes_plan
from gpuclusters.config.lab import uses_lab
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.proof.ladder import CheckLevel


def arguments(config: UsernetesConfig, highest: CheckLevel) -> dict[str, Any]:
    """The inputs of the ladder, and the arguments of its component, but the kubeconfig.

    Args:
        config: the section.
        highest: the last rung that is climbed; the training is described for rung 9 alone.
    """
    chosen = usernetes_plan.versions(config)
    return {
        "cluster": config.name,
        "rung": highest.value,
        "nodes": usernetes_plan.ladder_nodes(config),
        "namespace": config.proof.namespace,
        "smoke": usernetes_plan.network_test(config),
        "vector_add": usernetes_plan.vector_add(config),
        "training": _training(config) if highest is CheckLevel.TRAINING else None,
        "versions": {
            # One that somebody else installed, and that nobody names, is whatever the host shows.
            **({"driver": chosen.driver} if _driver_is_known(config) else {}),
            "container-toolkit": chosen.container_toolkit,
            "device-plugin": chosen.device_plugin,
            "kubernetes": chosen.kubernetes,
        },
        "timeout_seconds": config.timeouts.proof_seconds,
        "simulated": uses_lab(config),
    }


def _driver_is_known(config: UsernetesConfig) -> bool:
    return usernetes_plan.driver(config) is not None or config.driver.version is not None


def _training(config: UsernetesConfig) -> Mapping[str, Any] | None:
    plan = usernetes_plan.training(config)
    if plan is None:
        return None
    stated = asdict(plan)
    claim = stated.pop("claim")
    return {**stated, "data_claim": claim}
