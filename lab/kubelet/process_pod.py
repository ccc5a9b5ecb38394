"""A pod whose containers are processes of this machine."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from lab.cluster import ClusterError
from lab.kubelet.addresses import public
from lab.kubelet.environment import Environment
from lab.kubelet.pod_status import Conditions, running
from lab.kubelet.process_container import ProcessContainer
from lab.kubelet.runtime import NodeRuntime
from lab.kubelet.volumes import VolumeError, Volumes
from lab.pods import cluster_dns

_SYNC_SECONDS = 5.0
"""How often volumes follow what they show (a kubelet takes a minute)."""
_RETRY_SECONDS = 1.0
_log = logging.getLogger(__name__)


class ProcessPod:
    """Runs the containers, and writes the pod's status whenever one of them changes."""

    def __init__(self, runtime: NodeRuntime, pod: Mapping[str, Any]) -> None:
        self._runtime = runtime
        self._pod = pod
        self._conditions = Conditions(pod)
        self._changed = asyncio.Event()
        ports = [
            p["containerPort"] for c in pod["spec"]["containers"] for p in c.get("ports") or ()
        ]
        self._address = runtime.loopback.take(ports)
        self._volumes = Volumes(runtime.kube, runtime.folder, pod, runtime.authority)
        self._volumes.folder.mkdir(parents=True, exist_ok=True)
        environment = Environment(
            runtime.kube,
            pod,
            self._volumes,
            self._address,
            runtime.process_folder,
            program=lambda container: runtime.program(pod, container),
            given=self._given,
            inside=lambda: runtime.inside,
        )
        self._name = cluster_dns.Name.of(pod)
        before = {
            status["name"]: status["restartCount"] + 1
            for status in pod.get("status", {}).get("containerStatuses", [])
            if "waiting" not in status.get("state", {})
        }
        self._containers = [
            ProcessContainer(
                container,
                restart_policy=pod["spec"].get("restartPolicy", "Always"),
                environment=environment,
                volumes=self._volumes,
                log=runtime.log(pod, container["name"]),
                address=self._address,
                grace_seconds=pod["spec"].get("terminationGracePeriodSeconds", 30),
                restarts=before.get(container["name"], 0),
                changed=self._changed.set,
                tell=self._tell,
            )
            for container in pod["spec"]["containers"]
        ]

    @property
    def ended(self) -> bool:
        return all(container.ended for container in self._containers)

    def container_ended(self, container: str) -> bool:
        """Whether the container's present run writes no more."""
        return any(c.ended for c in self._containers if c.state.name == container)

    async def run(self) -> None:
        """Run all containers until every one has ended."""
        if self._name is not None:
            cluster_dns.publish(
                self._runtime.process_folder, self._name, self._address, self._runtime.folder.name
            )
        reporting = asyncio.create_task(self._report())
        syncing = asyncio.create_task(self._sync())
        try:
            async with asyncio.TaskGroup() as tasks:
                for container in self._containers:
                    tasks.create_task(container.run())
        finally:
            for task in (syncing, reporting):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await self._write()

    async def stop(self, grace_seconds: float) -> None:
        """Ask all containers to end, then make them."""
        await asyncio.gather(*(container.stop(grace_seconds) for container in self._containers))

    async def remove(self) -> None:
        """Give back its address and remove its volumes."""
        self._runtime.loopback.give_back(self._address)
        if self._name is not None:
            cluster_dns.withdraw(self._runtime.process_folder, self._name)
        self._volumes.remove()

    def _given(self, container: str) -> Mapping[str, str]:
        """Variables that device plugins answered for a container."""
        held = self._runtime.devices.of_pod(self._pod["metadata"]["uid"])
        return {n: v for one in held if one.container == container for n, v in one.envs}

    async def _report(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
            except ClusterError as error:
                _log.warning("status of %s: %s", self._pod["metadata"]["name"], error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._changed.set()

    async def _write(self) -> None:
        states = [container.state for container in self._containers]
        body = running(self._pod, self._conditions, states, address=public(self._address))
        await self._runtime.kube.set_status(body)

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(_SYNC_SECONDS)
            try:
                await self._volumes.write()
            except (VolumeError, ClusterError) as error:
                _log.info("volumes of %s: %s", self._pod["metadata"]["name"], error)

    async def _tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        await self._runtime.kube.event(self._pod, reason, message, warning=warning)
