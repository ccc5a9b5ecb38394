"""The life of one pod on a node: admitted, run, stopped, removed; every step as a kubelet takes it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from lab.cluster import ClusterError
from lab.kubelet.device_manager import REJECTED, AdmissionError
from lab.kubelet.logs import ContainerLog
from lab.kubelet.pod_status import TERMINAL, rejected
from lab.kubelet.process_pod import ProcessPod
from lab.kubelet.runtime import NodeRuntime, RunningPod, unsupported
from lab.kubelet.simulated_pod import SimulatedPod

_RETRY_SECONDS = 1.0
_log = logging.getLogger(__name__)


class PodWorker:
    """One pod. `gone` is called when nothing is left of it."""

    def __init__(
        self, runtime: NodeRuntime, pod: Mapping[str, Any], gone: Callable[[PodWorker], None]
    ) -> None:
        self.pod = pod
        self.over = phase(pod) in TERMINAL
        """Whether it holds nothing any more."""
        self._runtime = runtime
        self._gone = gone
        self._running: RunningPod | None = None
        self._deleting = asyncio.Event()
        self._absent = asyncio.Event()
        self._task = asyncio.create_task(self._live())
        self.update(pod)

    @property
    def containers(self) -> tuple[str, ...]:
        return tuple(container["name"] for container in self.pod["spec"]["containers"])

    def log(self, container: str) -> ContainerLog:
        return self._runtime.log(self.pod, container)

    def container_ended(self, container: str) -> bool:
        return self.over or (self._running is not None and self._running.container_ended(container))

    def update(self, pod: Mapping[str, Any]) -> None:
        """The API server has another version of it."""
        self.pod = pod
        if "deletionTimestamp" in pod["metadata"]:
            self._deleting.set()

    def vanish(self) -> None:
        """The API server has it no more: whatever runs must end."""
        self._absent.set()
        self._deleting.set()

    async def close(self) -> None:
        """End what runs for it on this machine, and leave the pod to the next start."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _live(self) -> None:
        while True:
            try:
                await self._steps()
                break
            except ClusterError as error:
                _log.warning("pod %s: %s", self.pod["metadata"]["name"], error)
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception:  # noqa: BLE001 (one pod's fault is not the others')
                _log.exception("pod %s: a fault of the stand-in", self.pod["metadata"]["name"])
                await asyncio.sleep(_RETRY_SECONDS)
        self._gone(self)

    async def _steps(self) -> None:
        if not self.over and not self._deleting.is_set():
            await self._admit_and_run()
        if self._running is not None:
            await self._running.remove()
            self._running = None
        self._release()
        await self._deleting.wait()
        if not self._absent.is_set():
            await self._runtime.kube.remove(self.pod)
            await self._absent.wait()

    async def _admit_and_run(self) -> None:
        # On this computer's processor, as its user, runs only what its user has made.
        trusted = not await self._runtime.kube.is_of_tenant(self.pod)
        real = trusted and self._runtime.runs_for_real(self.pod)
        refusal = await self._admit(real=real)
        if refusal is not None:
            reason, why = refusal
            await self._runtime.kube.event(self.pod, reason, why, warning=True)
            await self._runtime.kube.set_status(rejected(self.pod, reason, why))
            return
        if self._running is None:
            self._running = (
                ProcessPod(self._runtime, self.pod)
                if real
                else SimulatedPod(self._runtime, self.pod, trusted=trusted)
            )
        running = asyncio.create_task(self._running.run())
        deleting = asyncio.create_task(self._deleting.wait())
        try:
            await asyncio.wait({running, deleting}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await self._running.stop(grace_seconds(self.pod))
            await running
        finally:
            for task in (running, deleting):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _admit(self, *, real: bool) -> tuple[str, str] | None:
        if real:
            what = unsupported(self.pod, self._runtime)
            if what is not None:
                return "Unsupported", f"the stand-in of the kubelet does not do {what}"
        if self._running is not None or phase(self.pod) == "Running":
            # From before a restart: its devices are in the checkpoint.
            return None
        try:
            await self._runtime.devices.admit(self.pod)
        except AdmissionError as error:
            return REJECTED, str(error)
        return None

    def _release(self) -> None:
        self.over = True
        self._runtime.devices.free(self.pod["metadata"]["uid"])


def phase(pod: Mapping[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def grace_seconds(pod: Mapping[str, Any]) -> float:
    granted = pod["metadata"].get("deletionGracePeriodSeconds")
    return float(
        pod["spec"].get("terminationGracePeriodSeconds", 30) if granted is None else granted
    )
