"""The machines under the nodes: their GPUs, MIG, and RKE2, which the toolkit makes start anew."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

import asyncssh

from lab import control_plane, hosts
from lab.control_plane import processes
from lab.control_plane.commands import API_SERVER
from lab.control_plane.layout import Layout
from lab.hosts import GpuState, HostsError
from lab.hosts.rke2.rke2_cluster import Clusters

_AWAY_SECONDS = 2.0
"""How long the API of a single server is away; on a real one about a minute."""
_GRACE_SECONDS = 10.0
_log = logging.getLogger(__name__)


class Machines(Protocol):
    def gpus(self) -> Mapping[str, GpuState]:
        """The GPUs of every machine that is a node, by name of the node."""

    def divide(self, node: str, layout: Mapping[int, Sequence[str]]) -> None:
        """Divide GPUs by MIG; `HostsError` if that cannot be."""

    async def restart_rke2(self, node: str) -> None:
        """What the toolkit's signal to containerd comes to."""


class HostMachines:
    def __init__(self, folder: Path, lab: Path, nodes: Collection[str] | None = None) -> None:
        self._folder = folder
        self._lab = lab
        self._nodes = nodes

    def gpus(self) -> Mapping[str, GpuState]:
        found = {}
        for name in hosts.status(self._folder).hosts:
            if self._nodes is not None and name not in self._nodes:
                continue
            try:
                found[name] = hosts.gpu_state(self._folder, name)
            except HostsError as error:
                _log.warning("%s: %s", name, error)
        return found

    def divide(self, node: str, layout: Mapping[int, Sequence[str]]) -> None:
        hosts.set_mig(self._folder, node, layout)

    async def restart_rke2(self, node: str) -> None:
        """Restart the unit on the host; a cluster of a single server has no API meanwhile."""
        cluster = Clusters(self._folder).of_host(node)
        if cluster is None:
            return  # The lab's nodes are there from the start: nothing of RKE2 runs on this host.
        role = cluster["members"][node]["role"]
        servers = [m for m in cluster["members"].values() if m["role"] == "server"]
        _log.info("%s: the toolkit told containerd, which restarts rke2-%s", node, role)
        if role == "server" and len(servers) == 1:
            # As a child of this process, the API server that comes back would have to end with it.
            away = get_context("spawn").Process(target=_api_goes_away, args=(self._lab,))
            away.start()
            await asyncio.gather(self._restart(node, role), asyncio.to_thread(away.join))
        else:
            await self._restart(node, role)

    async def _restart(self, node: str, role: str) -> None:
        await self.run(node, f"sudo -n systemctl restart rke2-{role}")

    async def run(self, node: str, command: str) -> None:
        """Run a command line on a host; that it failed is only said in the log."""
        endpoint = hosts.status(self._folder).hosts[node]
        try:
            async with asyncssh.connect(
                endpoint.address,
                endpoint.port,
                username=endpoint.user,
                client_keys=[str(self._lab / "ssh" / "id_ed25519")],
                known_hosts=asyncssh.import_known_hosts(endpoint.known_host),
                agent_path=None,
                config=None,
            ) as connection:
                done = await connection.run(command)
        except (asyncssh.Error, OSError) as error:
            _log.warning("%s: `%s` did not run: %s", node, command, error)
            return
        if done.exit_status:
            _log.warning("%s: `%s` failed: %s", node, command, done.stderr)


def _api_goes_away(lab: Path) -> None:
    layout = Layout.of(lab)
    running = [one for one in processes.find(layout) if one.name == API_SERVER]
    processes.stop(running, grace_seconds=_GRACE_SECONDS)
    time.sleep(_AWAY_SECONDS)
    control_plane.start(lab, _quiet)


def _quiet(line: str) -> None:
    _log.info("%s", line)
