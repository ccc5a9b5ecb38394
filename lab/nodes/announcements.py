"""Tells simulated hosts which machines they are: a file in the folder of each, and a word to their server."""

import asyncio
import logging
from pathlib import Path

from lab.files import write_json
from lab.hosts import control
from lab.hosts.folder import HostsFolder
from lab.hosts.model import HostsError
from lab.nodes.node_files import Place

FILE = "machine.json"
_REQUEST = "machines"
_log = logging.getLogger(__name__)


class Announcements:
    """What the hosts of one folder are told; without such a folder nobody is told anything."""

    def __init__(self, hosts: Path | None, nodes: Path) -> None:
        """`nodes` is the folder of the nodes, for whoever wants to control them."""
        self._hosts = hosts
        self._nodes = nodes
        self._telling: asyncio.Task[None] | None = None
        self._again = False

    def switched_on(self, place: Place, pid: int, bmc_pid: int) -> None:
        """The machine of a host is there, with its network; its programs start now."""
        path = self._file(place.folder.name)
        if path is None:
            return
        machine = {
            "pid": pid,
            "address": place.address,
            "nodes": str(self._nodes),
            "bmc": {"pid": bmc_pid, "address": place.bmc},
        }
        write_json(path, machine)
        self._changed()

    def switched_off(self, name: str) -> None:
        path = self._file(name)
        if path is not None and path.exists():
            path.unlink()
            self._changed()

    async def heard(self) -> None:
        """Wait until the hosts' server has acted on all that was announced."""
        while self._telling is not None and not self._telling.done():
            await asyncio.shield(self._telling)

    def _file(self, name: str) -> Path | None:
        if self._hosts is None or not HostsFolder(self._hosts).host(name).path.is_dir():
            return None
        return HostsFolder(self._hosts).host(name).path / FILE

    def _changed(self) -> None:
        # Not waited for: the hosts' server may itself wait for what it asked of these nodes.
        self._again = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        while self._again and self._hosts is not None:
            self._again = False
            try:
                await asyncio.to_thread(control.tell, HostsFolder(self._hosts), _REQUEST)
            except (HostsError, OSError) as error:
                _log.warning("the hosts do not know of their machines: %s", error)


def withdraw(hosts: Path, nodes: list[str]) -> None:
    """Remove what a killed process announced."""
    for name in nodes:
        (HostsFolder(hosts).host(name).path / FILE).unlink(missing_ok=True)
