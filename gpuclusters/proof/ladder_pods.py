"""What rungs 6 and 8 run: a StatefulSet over all nodes, and a Job with one GPU on each."""

from __future__ import annotations

from typing import Any

from gpuclusters.domain.ports import ObjectKind
from gpuclusters.proof import pod
from gpuclusters.proof.ladder_inputs import WHOLE, LadderInputs, LadderNode, smoke
from gpuclusters.proof.pod import FOLDER, LABEL

STATEFUL_SET = ObjectKind("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
SERVICE = ObjectKind("", "v1", "services", "Service", namespaced=True)
REACH = "reach"
"""Name of the set, of its service, and value of the label of its pods."""
VECTOR_ADD = "vector-add"
PROGRAM = "reach.py"
PORT = 7946
NODE_NAME = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
POD_NAME = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
_TRY_SHARE = 0.5
"""Of the rung's time the pods try so long; the rest is for images to be pulled."""


def headless(inputs: LadderInputs, name: str) -> dict[str, Any]:
    """A service that gives every pod of its name a name in the cluster's DNS, ready or not."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": inputs.namespace, "labels": {LABEL: name}},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL: name},
        },
    }


def reach_set(inputs: LadderInputs, config_map: str) -> dict[str, Any]:
    """One pod on every node; each looks up others by name and talks to them."""
    count, part = len(inputs.hosts_of_pods), smoke(inputs)
    labels = {LABEL: REACH}
    seconds = str(int(part.timeout_seconds * _TRY_SHARE))
    command = ["python3", f"{FOLDER}/{PROGRAM}", "--count", str(count), "--service", REACH]
    container = pod.container(
        part.image,
        [*command, "--port", str(PORT), "--seconds", seconds],
        {},
        env=[POD_NAME, POD_IP, NODE_NAME],
        ports=[{"containerPort": PORT}],
    )
    place = pod.on_nodes([node.name for node in inputs.hosts_of_pods], inputs.tolerations)
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    place["affinity"]["podAntiAffinity"] = {
        "requiredDuringSchedulingIgnoredDuringExecution": [apart]
    }
    spec = pod.spec(container, place, config_map=config_map, restart="Always")
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": REACH, "namespace": inputs.namespace, "labels": labels},
        "spec": {
            "serviceName": REACH,
            "replicas": count,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                # Nothing is kept that a graceful end would save.
                "spec": {**spec, "terminationGracePeriodSeconds": 2},
            },
        },
    }


def vector_add(inputs: LadderInputs, node: LadderNode, config_map: str) -> dict[str, Any]:
    """NVIDIA's sample with one GPU on one node."""
    part = inputs.vector_add
    metadata = {
        "name": pod.job_name(VECTOR_ADD, node.name),
        "namespace": inputs.namespace,
        "labels": {LABEL: VECTOR_ADD},
    }
    spec = pod.spec(
        pod.container(part.image, (), {WHOLE: 1}),
        pod.on_nodes([node.name], inputs.tolerations),
        config_map=config_map,
    )
    return pod.job(metadata, spec, timeout_seconds=part.timeout_seconds)
