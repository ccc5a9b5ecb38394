"""Pods that ask for GPUs: what the machine of the leases knows of them, and what it does to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caas.cluster import Cluster, ClusterError, ConflictError
from gpuclusters.container_api.container import LEASE_ANNOTATION, LEASE_GATE, POD
from gpuclusters.domain.quantity import parse_quantity
from gpuclusters.lease.effects import (
    AdmitPod,
    DeletePod,
    Effect,
    Failed,
    FindPod,
    Outcome,
    Refused,
    Succeeded,
)
from gpuclusters.lease.state import Pod, PodState

_TERMINAL = ("Succeeded", "Failed")


def pod_of(body: Mapping[str, Any]) -> Pod:
    """What matters of a pod as it is stored."""
    metadata = body["metadata"]
    lease = (metadata.get("annotations") or {}).get(LEASE_ANNOTATION, "")
    if (body.get("status") or {}).get("phase") in _TERMINAL:
        state = PodState.ENDED
    elif metadata.get("deletionTimestamp"):
        state = PodState.ENDING
    elif is_gated(body):
        state = PodState.WAITING
    else:
        state = PodState.GOING
    return Pod(metadata["uid"], state, lease if state is not PodState.WAITING else "")


def is_gated(body: Mapping[str, Any]) -> bool:
    """Whether the pod still has the gate of the leases."""
    gates = (body.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == LEASE_GATE for gate in gates)


def gpus_of(body: Mapping[str, Any], resource: str) -> int:
    """How many GPUs the pod asks for; 0 for none and for what is no whole number."""
    total = 0
    for container in body["spec"].get("containers") or ():
        amount = ((container.get("resources") or {}).get("limits") or {}).get(resource, "0")
        try:
            wanted = parse_quantity(str(amount))
        except ValueError:
            return 0
        if wanted != int(wanted):
            return 0
        total += int(wanted)
    return total


class PodEffects:
    """Effects on pods. Every failure is an outcome."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def do(self, effect: Effect) -> Outcome:
        """Do it, and say how it ended."""
        try:
            match effect:
                case FindPod(uid, namespace, name):
                    return Succeeded(effect, await self._find(uid, namespace, name))
                case AdmitPod():
                    return await self._admit(effect)
                case DeletePod(uid, namespace, name):
                    return await self._delete(effect, uid, namespace, name)
                case _:
                    raise TypeError(f"not an effect on a pod: {effect}")
        except ClusterError as error:
            return Failed(effect, str(error))

    async def _find(self, uid: str, namespace: str, name: str) -> Pod:
        body = await self._cluster.get(POD, name, namespace)
        if body is None or body["metadata"]["uid"] != uid:
            return Pod(uid, PodState.GONE)
        return pod_of(body)

    async def _admit(self, effect: AdmitPod) -> Outcome:
        """Open the gate, if the pod is still the one that was looked at: any change in between refuses."""
        body = await self._cluster.get(POD, effect.name, effect.namespace)
        if body is None or body["metadata"]["uid"] != effect.uid:
            return Succeeded(effect, Pod(effect.uid, PodState.GONE))
        pod = pod_of(body)
        if pod.state is not PodState.WAITING:
            return Succeeded(effect, pod)
        host = effect.lease.rpartition("/")[0]
        gates = [g for g in body["spec"]["schedulingGates"] if g.get("name") != LEASE_GATE]
        patch = {
            "metadata": {
                "uid": effect.uid,
                "resourceVersion": body["metadata"]["resourceVersion"],
                "annotations": {LEASE_ANNOTATION: effect.lease},
            },
            "spec": {
                "schedulingGates": gates,
                "nodeSelector": {"kubernetes.io/hostname": host},
            },
        }
        try:
            after = await self._cluster.patch(POD, effect.name, effect.namespace, patch)
        except ConflictError as error:
            return Refused(effect, str(error))
        return Succeeded(effect, pod_of(after))

    async def _delete(self, effect: Effect, uid: str, namespace: str, name: str) -> Outcome:
        try:
            await self._cluster.delete(POD, name, namespace, uid=uid)
        except ConflictError:
            return Succeeded(effect, Pod(uid, PodState.GONE))
        return Succeeded(effect, await self._find(uid, namespace, name))
