"""A pod that only seems to run: its phases, times and log are those of a pod that runs well."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from lab.hosts.injecting import BusyError
from lab.kubelet import proof_program
from lab.kubelet.installation import is_installer
from lab.kubelet.kata_installer import InstallError, KataInstaller
from lab.kubelet.machine import Machine
from lab.kubelet.pod_status import Conditions, ContainerState, running
from lab.kubelet.runtime import NodeRuntime, cdi_names

LOG_ANNOTATION = "gpu-clusters.dev/simulated-log"
"""What a simulated container says instead of its one line."""

_STOPPED = 143
"""Exit code of a process that SIGTERM ended."""


class SimulatedPod:
    """With devices it takes its time to boot and says so in events; without it runs at once.

    A pod of a Job completes, and one of a proof, which runs its program on this machine's processor. If it is
    trusted, one of kata-deploy installs.
    """

    def __init__(self, runtime: NodeRuntime, pod: Mapping[str, Any], *, trusted: bool) -> None:
        self._runtime = runtime
        self._pod = pod
        self._conditions = Conditions(pod)
        status = pod.get("status", {})
        self._began = status.get("phase") == "Running"
        self._address = runtime.range.take(status.get("podIP", ""))
        self._containers = [
            ContainerState(container["name"], container["image"])
            for container in pod["spec"]["containers"]
        ]
        self._stopping = asyncio.Event()
        self._over = asyncio.Event()
        self._installer = _installer(runtime, pod) if trusted else None
        self._proves = proof_program.brings_our_own(pod) or (
            trusted and proof_program.is_proof(pod)
        )
        self._exit_code = 0

    @property
    def ended(self) -> bool:
        return self._over.is_set()

    def container_ended(self, container: str) -> bool:
        del container
        return self._over.is_set()

    async def run(self) -> None:
        """Boot, then run until stopped; one of a Job completes."""
        if not self._began:
            await self._boot()
        owners = self._pod["metadata"].get("ownerReferences") or ()
        completes = self._proves or any(owner["kind"] == "Job" for owner in owners)
        if not completes:
            await self._stopping.wait()
        now = datetime.now(UTC)
        code = _STOPPED if self._stopping.is_set() else self._exit_code
        self._containers = [
            replace(c, ready=False, started=c.started or now, finished=now, exit_code=code)
            for c in self._containers
        ]
        if self._runtime.machine is not None:
            await self._runtime.machine.end(self._pod)
        if self._installer is not None:
            await self._installer.end()
        await self._write()
        self._over.set()

    async def stop(self, grace_seconds: float) -> None:
        """End at once; there is nothing that could want its grace."""
        del grace_seconds
        self._stopping.set()

    async def remove(self) -> None:
        self._runtime.range.give_back(self._address)

    async def _boot(self) -> None:
        devices = self._runtime.devices.of_pod(self._pod["metadata"]["uid"])
        if devices:
            await self._pause()
            await self._write()
            if self._runtime.machine is not None:
                ids = [device for allocation in devices for device in allocation.devices]
                await self._begin(self._runtime.machine, ids)
                if self._stopping.is_set():
                    return
            await self._tell("SandboxCreated", f"Sandbox runs with {cdi_names(devices)}")
            await self._pause()
        if self._installer is not None:
            await self._install(self._installer)
        if self._stopping.is_set():
            return
        now = datetime.now(UTC)
        for container in self._pod["spec"]["containers"]:
            self._say(container)
        self._containers = [replace(c, ready=True, started=now) for c in self._containers]
        await self._write()
        if devices:
            await self._tell("Started", "Started container (simulated)")
        if self._proves:
            await self._prove()

    async def _begin(self, machine: Machine, ids: Sequence[str]) -> None:
        """Have its virtual machine started; while another one has a GPU of it, that is tried again."""
        while not self._stopping.is_set():
            try:
                await machine.begin(self._pod, ids)
            except BusyError as error:
                said = f"Failed to create pod sandbox: {error}"
                await self._tell("FailedCreatePodSandBox", said, warning=True)
                await self._pause()
            else:
                return

    async def _prove(self) -> None:
        output = await proof_program.run(self._runtime.kube, self._pod)
        self._exit_code = output.exit_code
        log = self._runtime.log(self._pod, self._pod["spec"]["containers"][0]["name"])
        for line in output.lines:
            log.append(0, "stdout", line.encode())

    async def _install(self, installer: KataInstaller) -> None:
        while not self._stopping.is_set():
            try:
                await installer.run()
            except InstallError as error:
                await self._tell("BackOff", str(error))
                await self._pause()
            else:
                return

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._runtime.boot_seconds):
                await self._stopping.wait()

    def _say(self, container: Mapping[str, Any]) -> None:
        annotations = self._pod["metadata"].get("annotations") or {}
        command = [*(container.get("command") or ()), *(container.get("args") or ())]
        words = " ".join(["simulated container", container["image"], *command])
        log = self._runtime.log(self._pod, container["name"])
        for line in annotations.get(LOG_ANNOTATION, words).splitlines():
            log.append(0, "stdout", line.encode())

    async def _write(self) -> None:
        body = running(
            self._pod,
            self._conditions,
            self._containers,
            address=self._address,
            first=self._first(),
        )
        await self._runtime.kube.set_status(body)

    def _first(self) -> list[ContainerState]:
        """Its init containers, which have ended well once the others run; a sidecar runs with them."""
        main = self._containers[0]
        states = []
        for one in self._pod["spec"].get("initContainers") or ():
            stays = one.get("restartPolicy") == "Always"
            ended = main.finished if stays else main.started
            state = ContainerState(one["name"], one["image"], started=main.started, finished=ended)
            states.append(
                replace(state, ready=main.started is not None and (main.ready or not stays))
            )
        return states

    async def _tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        await self._runtime.kube.event(self._pod, reason, message, warning=warning)


def _installer(runtime: NodeRuntime, pod: Mapping[str, Any]) -> KataInstaller | None:
    """What installs something on the node when it runs; None for pods that do nothing."""
    if not is_installer(pod):
        return None
    machine = runtime.machine
    return KataInstaller(runtime.kube, machine.hosts if machine is not None else None, pod)
