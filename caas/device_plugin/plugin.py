"""The whole plugin of one host: leases, answers, registration and reconciliation as one thing."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from caas.cluster import Cluster, ClusterError
from caas.device_plugin.leases import Clock, Leases
from caas.device_plugin.marking import Marker
from caas.device_plugin.reconciler import Reconciler
from caas.device_plugin.registration import Registration
from caas.device_plugin.service import PluginService
from caas.settings import Host
from gpuclusters.device_plugin.decide import Board

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things may take, in seconds."""

    confirm: float = 10
    """How often the leases are read although nothing seems to have changed."""
    stale: float = 30
    """Leases that were not confirmed for so long are not believed: no free GPU is offered any more."""
    read: float = 8
    """The longest wait for the API server while a kubelet waits."""
    reconcile: float = 5
    """How often the kubelet's list is compared with the leases."""
    release: float = 1
    """How often that is done while a pod's end is awaited."""
    unseen: float = 30
    """How long an allocated GPU may be missing in the kubelet's list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """Where the kubelet's sockets are."""

    device_plugins: Path
    pod_resources: Path


class Plugin:
    """The plugin of one host, as long as `run` runs."""

    def __init__(
        self,
        cluster: Cluster,
        host: Host,
        kubelet: Kubelet,
        *,
        resource: str,
        cdi_kind: str,
        pace: Pace | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._host = host
        self._pace = pace or Pace()
        self.leases = Leases(cluster, host, clock, self._learnt)
        self.service = PluginService(Marker(self.leases, self._pace.read), cdi_kind, self.board)
        self.registration = Registration(kubelet.device_plugins, resource, self.service)
        self.reconciler = Reconciler(
            cluster,
            self.leases,
            kubelet.pod_resources,
            resource,
            clock=clock,
            every_seconds=self._pace.reconcile,
            release_seconds=self._pace.release,
            unseen_seconds=self._pace.unseen,
        )
        self.reconciler.changed = self.service.changed

    @property
    def ready(self) -> bool:
        """Whether the kubelet knows the plugin and the leases are known."""
        return self.registration.registered and not self.board().stale

    def board(self) -> Board:
        """The host as known now."""
        stale = self.leases.age() > self._pace.stale
        return Board(
            self._host.name,
            self.leases.devices,
            self._host.offered,
            self.reconciler.listed,
            stale,
        )

    async def run(self) -> None:
        """Do it all, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.leases.follow())
            tasks.create_task(self._confirm())
            tasks.create_task(self.registration.run())
            tasks.create_task(self.reconciler.run())

    def _learnt(self) -> None:
        self.service.changed()
        self.reconciler.look()

    async def _confirm(self) -> None:
        """Read the leases again and again; what cannot be confirmed becomes unhealthy in time."""
        while True:
            try:
                await self.leases.read(self._pace.read)
            except ClusterError as error:
                _log.warning("leases not confirmed for %.0f s: %s", self.leases.age(), error)
            self.service.changed()
            # In time for the moment from which they are not believed any more.
            left = self._pace.stale - self.leases.age()
            pause = min(self._pace.confirm, left + 0.1) if left > 0 else self._pace.confirm
            await asyncio.sleep(pause)
