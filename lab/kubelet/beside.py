"""A node whose kubelet is real: what stands outside of its containers, and no program of it does, is played.

A pod of kata-deploy installs Kata on the simulated host and says so by a label; a pod with GPUs is a virtual
machine there. Nothing is written into the status of a pod: that is its kubelet's.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from lab.cluster import ClusterError
from lab.kubelet import virtual_machine
from lab.kubelet.installation import Installations, is_installer
from lab.kubelet.kube import Kube
from lab.kubelet.machine import Machine
from lab.kubelet.real_devices import RealDevices
from lab.kubelet.seen_pod import Pod, SeenPod

_RETRY_SECONDS = 1.0
_log = logging.getLogger(__name__)

Play = Callable[[SeenPod], Awaitable[None]]


class BesideNode:
    """One node. `hosts` is the folder of the simulated hosts, `file` where it remembers installations."""

    def __init__(
        self, name: str, kube: Kube, hosts: Path | None, devices: RealDevices, file: Path
    ) -> None:
        self.name = name
        self._machine = Machine(hosts, name) if hosts is not None else None
        self._devices = devices
        self._installations = Installations(kube, hosts, file)
        self._pods: dict[str, SeenPod] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def known(self, pods: Iterable[Pod]) -> None:
        """These pods are all there are on the node: what others left on the host goes."""
        there = list(pods)
        if self._machine is not None:
            await self._machine.keep_only(pod for pod in there if not SeenPod(pod).over.is_set())
        try:
            await self._installations.known(there)
        except ClusterError as error:
            _log.warning("%s: what is installed there stays for now: %s", self.name, error)

    def saw(self, pod: Pod) -> None:
        """A pod of this node is there, or changed."""
        uid = pod["metadata"]["uid"]
        seen = self._pods.get(uid)
        if seen is not None:
            seen.update(pod)
            return
        play = self._play(pod)
        if play is not None:
            self._pods[uid] = SeenPod(pod)
            self._tasks[uid] = asyncio.create_task(self._live(uid, play))

    def lost(self, uid: str) -> None:
        seen = self._pods.get(uid)
        if seen is not None:
            seen.vanish()

    async def close(self) -> None:
        """Play no more; everything stays as it is."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _play(self, pod: Pod) -> Play | None:
        if is_installer(pod):
            return self._installations.play
        machine = self._machine
        if machine is not None and virtual_machine.has_virtual_machine(pod):
            return lambda seen: virtual_machine.play(seen, machine, self._devices)
        return None

    async def _live(self, uid: str, play: Play) -> None:
        seen = self._pods[uid]
        while True:
            try:
                await play(seen)
                break
            except ClusterError as error:
                _log.warning("pod %s/%s: %s", *seen.name, error)
            except Exception:  # noqa: BLE001 (one pod's fault is not the others')
                _log.exception("pod %s/%s: a fault of the stand-in", *seen.name)
            await asyncio.sleep(_RETRY_SECONDS)
        await seen.gone.wait()
        del self._pods[uid], self._tasks[uid]
