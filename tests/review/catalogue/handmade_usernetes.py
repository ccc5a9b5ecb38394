"""Changes of a usernetes cluster, made by hand as those of `handmade` are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuclusters.review.plan import KEPT
from tests.review.catalogue.handmade import Inputs, connection, plan, sides, step

CLUSTER = ("gpu-clusters:usernetes:UsernetesCluster", "v100")
NODE = f"{KEPT}UsernetesNode"
HOST = f"{KEPT}RootlessHost"


def component(host: str) -> tuple[str, str]:
    return ("gpu-clusters:usernetes:RootlessHost", host)


def node(host: str, role: str, number: int) -> dict[str, Any]:
    return {
        "connection": connection(host),
        "account": "ubuntu",
        "cluster": "v100",
        "role": role,
        "node_name": host,
        "number": number,
        "source": {"tag": "gen3-v20260902.0", "kubernetes": "v1.37.0", "sha256": "0" * 64},
        "container_toolkit": "1.20.0",
        "gpus": 4,
    }


def rootless(host: str) -> dict[str, Any]:
    return {
        "connection": connection(host),
        "account": "ubuntu",
        "gpus": 4,
        "docker": "29.7.2",
        "container_toolkit": "1.20.0",
        "remove_data": False,
    }


NODES = {
    "gpu-01": node("gpu-01", "control-plane", 1),
    "gpu-02": node("gpu-02", "worker", 2),
    "gpu-03": node("gpu-03", "worker", 3),
}


def cluster(op: Mapping[str, str], **fields: Inputs) -> dict[str, Any]:
    """Three machines with four V100 each; `op` by machine, `fields` of what is updated by kind."""
    steps = [step("same", *CLUSTER, *sides("same", {}))]
    for host, inputs in NODES.items():
        what = op.get(host, "same")
        around = "same" if what == "update" else what
        steps.append(step(around, *component(host), *sides(around, {})))
        for kind, name, parent, old in (
            (HOST, f"{host}-rootless", component(host), rootless(host)),
            (NODE, f"{host}-node", CLUSTER, inputs),
        ):
            changes = fields.get(kind.rpartition(":")[-1])
            if what == "update" and changes is None:
                steps.append(step("same", kind, name, old, old, parent=parent))
            elif what == "update":
                steps.append(step(what, kind, name, old, {**old, **(changes or {})}, parent=parent))
            else:
                steps.append(step(what, kind, name, *sides(what, old), parent=parent))
    return plan(*steps)


EVERY = dict.fromkeys(NODES, "update")


def worker_added() -> dict[str, Any]:
    return cluster({"gpu-03": "create"})


def worker_removed() -> dict[str, Any]:
    return cluster({"gpu-03": "delete"})


def usernetes_upgraded() -> dict[str, Any]:
    newer = {"tag": "gen3-v20261102.0", "kubernetes": "v1.37.1", "sha256": "1" * 64}
    return cluster(EVERY, UsernetesNode={"source": newer})


def docker_bumped() -> dict[str, Any]:
    return cluster(EVERY, RootlessHost={"docker": "29.8.0"})


PLANS: Mapping[str, Callable[[], dict[str, Any]]] = {
    made.__name__.replace("_", "-"): made
    for made in (worker_added, worker_removed, usernetes_upgraded, docker_bumped)
}
