"""The whole plugin of one host: leases, answers, registration and reconciliation as one thing."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from caas.cluster import Cluster, ClusterError
from caas.device_plugin.kubelet import PluginService, Registration
from caas.device_plugin.leases import Clock, Leases
from caas.device_plugin.reconciler import Pace, Reconciler
from caas.settings import Host
from gpuclusters.device_plugin.decide import Board

_log = logging.getLogger(__name__)


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
        self._host, self._pace = host, pace or Pace()
        self.leases = Leases(cluster, host, self._pace.read, clock, self._learnt)
        self.service = PluginService(self.leases, cdi_kind, self.board)
        self.registration = Registration(kubelet.device_plugins, resource, self.service)
        self.reconciler = Reconciler(
            cluster,
            self.leases,
            kubelet.pod_resources,
            resource,
            self._pace,
            clock,
            self.service.changed,
        )

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
                await self.leases.read()
            except ClusterError as error:
                _log.warning("leases not confirmed for %.0f s: %s", self.leases.age(), error)
            self.service.changed()
            # In time for the moment from which they are not believed any more.
            left = self._pace.stale - self.leases.age()
            pause = min(self._pace.confirm, left + 0.1) if left > 0 else self._pace.confirm
            await asyncio.sleep(pause)
