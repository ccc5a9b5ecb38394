"""One node: registered, kept alive, its pods and devices looked after."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lab.cluster import LEASE, NODE, ClusterError
from lab.control_plane import NodeSpec
from lab.kubelet.kube import MANAGER
from lab.kubelet.node_objects import lease_object, node_object, status_object
from lab.kubelet.pod_resources import PodResources
from lab.kubelet.pod_worker import PodWorker
from lab.kubelet.runtime import NodeRuntime
from lab.nodes.objects import LABEL as REAL_NODE

PLAYED_BY = "gpu-clusters.dev/played-by"
"""Annotation of a pod that another stand-in plays: the kubelet leaves it, its status and its end alone."""

_HEARTBEAT_SECONDS = 10.0
_STATUS_SECONDS = 60.0
_RETRY_SECONDS = 1.0
_READY_POLL_SECONDS = 0.1
_log = logging.getLogger(__name__)


class Node:
    """The kubelet of one node. `told` is set whenever its devices changed."""

    def __init__(
        self, spec: NodeSpec, runtime: NodeRuntime, port: int, told: asyncio.Event
    ) -> None:
        self.name = spec.name
        self._spec = spec
        self._runtime = runtime
        self._port = port
        self._told = told
        self._since = datetime.now(UTC)
        self._workers: dict[str, PodWorker] = {}
        self._resources = PodResources(runtime.folder, runtime.devices, self._pods)
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Register, as Ready, and serve plugins; returns when the scheduler may use the node."""
        cluster = self._runtime.kube.cluster
        there = await cluster.apply(NODE, node_object(self._spec), manager=MANAGER)
        if REAL_NODE in there["metadata"]["labels"]:
            # Its kubelet was a real one before, in this same cluster.
            unmarked = {"metadata": {"labels": {REAL_NODE: None}}}
            await cluster.patch(NODE, self.name, "", unmarked)
        await self._beat()
        await self._write_status()
        await self._runtime.devices.open()
        await self._resources.open()
        self._tasks = [asyncio.create_task(work) for work in (self._heartbeat(), self._report())]
        while True:
            node = await cluster.get(NODE, self.name) or {}
            spec = node.get("spec", {})
            taints = [taint["key"] for taint in spec.get("taints") or ()]
            if "node.kubernetes.io/not-ready" not in taints and "podCIDR" in spec:
                self._runtime.range.use(spec["podCIDR"])
                return
            await asyncio.sleep(_READY_POLL_SECONDS)

    async def close(self) -> None:
        await asyncio.gather(*(worker.close() for worker in self._workers.values()))
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._resources.close()
        await self._runtime.devices.close()

    async def known(self, pods: Sequence[Mapping[str, Any]]) -> None:
        """These pods are all there are on the node: what others had is free."""
        if self._runtime.machine is not None:
            await self._runtime.machine.keep_only(pods)
        self._runtime.devices.keep_only(frozenset(pod["metadata"]["uid"] for pod in pods))

    def saw(self, pod: Mapping[str, Any]) -> None:
        """A pod of this node is there, or changed."""
        if PLAYED_BY in (pod["metadata"].get("annotations") or {}):
            return
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if worker is None:
            self._workers[uid] = PodWorker(self._runtime, pod, self._forget)
        else:
            worker.update(pod)

    def lost(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            worker.vanish()

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """A pod by name; the newest of that name."""
        for worker in reversed(self._workers.values()):
            metadata = worker.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return worker
        return None

    def _forget(self, worker: PodWorker) -> None:
        uid = worker.pod["metadata"]["uid"]
        self._workers.pop(uid, None)
        shutil.rmtree(self._runtime.folder.logs(uid), ignore_errors=True)

    def _pods(self) -> list[Mapping[str, Any]]:
        return [worker.pod for worker in self._workers.values() if not worker.over]

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            try:
                await self._beat()
            except ClusterError as error:
                _log.warning("%s: no heartbeat: %s", self.name, error)

    async def _beat(self) -> None:
        body = lease_object(self.name)
        await self._runtime.kube.cluster.apply(LEASE, body, manager=MANAGER)

    async def _report(self) -> None:
        """Write the status when devices change, and now and then."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STATUS_SECONDS):
                    await self._told.wait()
            self._told.clear()
            try:
                await self._write_status()
            except ClusterError as error:
                _log.warning("%s: status not written: %s", self.name, error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._told.set()

    async def _write_status(self) -> None:
        devices = self._runtime.devices.capacity()
        body = status_object(self._spec, self._port, devices, self._since)
        await self._runtime.kube.cluster.apply(NODE, body, manager=MANAGER, subresource="status")
