"""A container that runs as a process: started, probed, restarted with growing pauses, stopped."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from lab.cluster import ClusterError
from lab.kubelet.environment import ConfigError, Environment, StartError
from lab.kubelet.logs import ContainerLog
from lab.kubelet.pod_status import ContainerState
from lab.kubelet.probes import Probe
from lab.kubelet.spawning import Process
from lab.kubelet.volumes import VolumeError, Volumes

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
_FORGIVEN_SECONDS = 300.0
"""A run that lasted this long makes the next pause a short one again."""
_CONFIG_RETRY_SECONDS = 2.0
_SHUTDOWN_SECONDS = 4.0
"""What a process is granted when the stand-in itself ends."""
_NEVER_RAN = 137
_NOT_MADE = 128
_log = logging.getLogger(__name__)


class Tell(Protocol):
    async def __call__(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Make an event of it."""


class ProcessContainer:
    """One container of a pod. `changed` is called whenever `state` is another one."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        *,
        restart_policy: str,
        environment: Environment,
        volumes: Volumes,
        log: ContainerLog,
        address: str,
        grace_seconds: float,
        restarts: int,
        changed: Callable[[], None],
        tell: Tell,
    ) -> None:
        self._spec = spec
        self._policy = restart_policy
        self._environment = environment
        self._volumes = volumes
        self._address = address
        self._grace_seconds = grace_seconds
        self._changed = changed
        self._tell = tell
        self._process: Process | None = None
        self._stopping = asyncio.Event()
        self.log = log
        self.state = ContainerState(spec["name"], spec["image"], restarts=restarts)

    @property
    def ended(self) -> bool:
        """Whether it runs no more and will not again."""
        return self.state.finished is not None and not self.state.waiting

    async def run(self) -> None:
        """Run it as often as its pod's restart policy says; one that has ended is not run again."""
        pause = FIRST_PAUSE_SECONDS
        while not self.ended and not self._stopping.is_set():
            began = datetime.now(UTC)
            code = await self._run_once()
            if code is None:
                continue
            ended = datetime.now(UTC)
            started = self.state.started or began
            if self._stopping.is_set() or not self._restarts(code):
                self._set(ready=False, finished=ended, exit_code=code)
                return
            if (ended - started).total_seconds() > _FORGIVEN_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._set(
                ready=False,
                waiting="CrashLoopBackOff",
                message=f"back-off {pause:.0f}s restarting failed container={self._spec['name']}",
                last_exit=(code, started, ended),
            )
            await self._tell(
                "BackOff",
                f"Container {self._spec['name']} ended with exit code {code}",
                warning=True,
            )
            await self._pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            self._set(restarts=self.state.restarts + 1)
        if not self.ended:
            now = datetime.now(UTC)
            self._set(ready=False, waiting="", started=now, finished=now, exit_code=_NEVER_RAN)

    async def stop(self, grace_seconds: float) -> None:
        """End it; `run` returns."""
        self._stopping.set()
        if self._process is not None:
            await self._process.stop(grace_seconds)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _restarts(self, code: int) -> bool:
        return self._policy == "Always" or (self._policy == "OnFailure" and code != 0)

    async def _run_once(self) -> int | None:
        """The exit code of one run; None when it could not be made and is to be tried again."""
        try:
            await self._volumes.write()
            launch = await self._environment.launch(self._spec)
            run = self.state.restarts
            process = await Process.start(launch, self._volumes.folder, self.log, run)
        except StartError as error:
            return await self._not_made(str(error))
        except (ConfigError, VolumeError, ClusterError, OSError) as error:
            await self._cannot(str(error))
            return None
        self._process = process
        if self._stopping.is_set():
            # Asked to end before there was anything to end.
            await process.stop(0)
        probes = self._probes()
        self._set(
            waiting="",
            message="",
            started=datetime.now(UTC),
            finished=None,
            ready="readinessProbe" not in probes and "startupProbe" not in probes,
        )
        await self._tell("Started", f"Started container {self._spec['name']}")
        watching = asyncio.create_task(self._obey(probes, process))
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await process.stop(_SHUTDOWN_SECONDS)
            raise
        finally:
            self._process = None
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    async def _not_made(self, why: str) -> int | None:
        """The runtime refuses: that ends a container that is never restarted, others wait and try again."""
        await self._tell("Failed", f"Error: {why}", warning=True)
        if self._restarts(_NOT_MADE):
            self._set(waiting="RunContainerError", message=why, ready=False)
            await self._pause(_CONFIG_RETRY_SECONDS)
            return None
        self._set(waiting="", reason="StartError", message=why, started=datetime.now(UTC))
        return _NOT_MADE

    async def _cannot(self, why: str) -> None:
        if self.state.message != why:
            _log.warning("container %s: %s", self._spec["name"], why)
            await self._tell("Failed", f"Error: {why}", warning=True)
        self._set(waiting="CreateContainerConfigError", message=why, ready=False)
        await self._pause(_CONFIG_RETRY_SECONDS)

    def _probes(self) -> dict[str, Probe]:
        return {
            kind: Probe(self._spec[kind], self._spec, self._address, eager=kind != "livenessProbe")
            for kind in ("startupProbe", "readinessProbe", "livenessProbe")
            if kind in self._spec
        }

    async def _obey(self, probes: Mapping[str, Probe], process: Process) -> None:
        """Follow what the probes find: not ready, or to be killed."""
        startup = probes.get("startupProbe")
        others = [probe for kind, probe in probes.items() if kind != "startupProbe"]
        async with asyncio.TaskGroup() as tasks:
            if startup is not None:
                started = tasks.create_task(startup.run())
                await startup.changed.wait()
                started.cancel()
                if not startup.healthy:
                    await self._kill(process, "startupProbe")
                    return
            for probe in others:
                tasks.create_task(probe.run())
            if "readinessProbe" in probes:
                tasks.create_task(self._follow_readiness(probes["readinessProbe"]))
            else:
                self._set(ready=True)
            if "livenessProbe" in probes:
                tasks.create_task(self._follow_liveness(probes["livenessProbe"], process))

    async def _follow_readiness(self, probe: Probe) -> None:
        while True:
            await probe.changed.wait()
            probe.changed.clear()
            self._set(ready=bool(probe.healthy))
            if not probe.healthy:
                await self._tell("Unhealthy", "Readiness probe failed", warning=True)

    async def _follow_liveness(self, probe: Probe, process: Process) -> None:
        while probe.healthy is not False:
            await probe.changed.wait()
            probe.changed.clear()
        await self._kill(process, "livenessProbe")

    async def _kill(self, process: Process, probe: str) -> None:
        name, kind = self._spec["name"], probe.removesuffix("Probe")
        await self._tell(
            "Killing", f"Container {name} failed {kind} probe, will be restarted", warning=True
        )
        grace = self._spec[probe].get("terminationGracePeriodSeconds", self._grace_seconds)
        # Not to be cancelled by the very end that it brings about.
        await asyncio.shield(process.stop(float(grace)))

    def _set(self, **changes: Any) -> None:
        state = replace(self.state, **changes)
        if state != self.state:
            self.state = state
            self._changed()
