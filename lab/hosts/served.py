"""One host with all that answers for it, where its machine is: on loopback, or with a real node."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.files import read_json, write_json
from lab.hosts.bmc import Bmc
from lab.hosts.host import Host
from lab.hosts.model import HostsError
from lab.hosts.rke2 import real_machine
from lab.hosts.rke2.real_machine import BMC_PORT, SSH_PORT, RealMachine
from lab.hosts.ssh.door import Post, Where
from lab.hosts.ssh.listener import Listener

_NODES = "nodes-while-down"
"""In a host's state while it is down: who has its node, and starts it when the host comes up."""
_log = logging.getLogger(__name__)


class Served:
    """A host, its SSH server and its management controller."""

    def __init__(
        self, host: Host, client_key: str, password: str, moved: Callable[[], None]
    ) -> None:
        """`moved` is called when the host answers elsewhere than before."""
        self.host = host
        self.listener = Listener(host, client_key)
        self.bmc = Bmc(host, password)
        self._moved = moved
        self._moving = asyncio.Lock()
        self._settling: set[asyncio.Task[None]] = set()
        ports = read_json(host.folder.identity)
        self._ssh_post = Post(self.listener, ports["port"], self._lost)
        self._bmc_post = Post(self.bmc, ports.get("bmc-port"), self._lost)
        host.power.connect(self)

    @property
    def nodes(self) -> Path | None:
        """The folder of the real nodes of which one is this host."""
        return self.host.node.nodes if self.host.node is not None else None

    def document(self) -> dict[str, Any]:
        """How to reach it, for `ready.json`."""
        return {
            "address": self.listener.place.address,
            "port": self.listener.place.port,
            "host-key": self.listener.host_key,
            "bmc-address": self.bmc.place.address,
            "bmc-port": self.bmc.place.port,
            "bmc-certificate": self.bmc.certificate,
            "condition": self.host.identity["condition"],
        }

    async def open(self, nodes: Path | None = None) -> None:
        """Answer, and finish what the end of a server cut off.

        `nodes`: who has this host's node, which is down and comes up with it.

        Raises:
            HostsError: a port of loopback is not to be had.
        """
        if nodes is not None:
            self.host.machine.state[_NODES] = str(nodes)
            await self.start_machine()
        else:
            await self._go_where_it_can()
        await self.host.power.resume()
        await self.host.services.resume()
        await self.listener.apply_faults()

    async def settle(self) -> None:
        """Be where `machine.json` says now; while the host is down nothing moves but what lost its network.

        Raises:
            HostsError: it cannot listen there; it is on loopback then.
        """
        async with self._moving:
            if "power" not in self.host.machine.state:
                await self._go()
            elif self._bmc_post.is_lost:
                await self._bmc_post.go(None)
        self._moved()

    async def apply_faults(self) -> None:
        """What was injected or taken away takes effect."""
        await self.host.power.resume()
        await self.listener.apply_faults()

    async def suspend(self) -> None:
        """The host goes off the network; its management controller stays."""
        await self.listener.suspend()

    async def stop_machine(self) -> None:
        """A real node under the host ends with all that runs on it."""
        state, nodes = self.host.machine.state, self.nodes
        if nodes is not None:
            state[_NODES] = str(nodes)
            self.host.machine.save()
        if _NODES in state:
            self.host.stands_on(None, None)
            self._ssh_post.leave()
            await self._control("stop")

    async def forget_disk(self) -> None:
        """A node that is down starts with nothing of what its programs kept."""
        if _NODES in self.host.machine.state:
            await self._control("forget")

    async def start_machine(self) -> None:
        """A real node comes up with the host, in namespaces of its own anew."""
        state = self.host.machine.state
        if _NODES not in state:
            return
        # Not while it moves: who starts the node may first have to be heard that it is there.
        await self._control("start")
        async with self._moving:
            del state[_NODES]
            await self._go_where_it_can()

    async def resume(self) -> None:
        """The host is up again."""
        await self.listener.resume()
        self._moved()

    async def close(self) -> None:
        """Stop answering; a node under the host is left alone."""
        for task in self._settling:
            task.cancel()
        await asyncio.gather(*self._settling, return_exceptions=True)
        await self.listener.close()
        await self.bmc.close()
        await self.host.close()
        self._ssh_post.leave()
        self._bmc_post.leave()

    async def _go_where_it_can(self) -> None:
        try:
            await self._go()
        except HostsError as error:
            if real_machine.read(self.host.folder) is None:
                raise
            _log.warning("%s", error)

    async def _go(self) -> None:
        """Go where `machine.json` says, or to loopback when there is no such machine."""
        node = real_machine.read(self.host.folder)
        try:
            await self._stand(node)
        except ProcessLookupError:
            await self._stand(None)
        except HostsError:
            if node is None:
                raise
            await self._stand(None)
            raise

    async def _stand(self, node: RealMachine | None) -> None:
        if node is None:
            bmc = ssh = None
        else:
            bmc = Where(node.bmc_pid, node.bmc_address, BMC_PORT)
            ssh = Where(node.pid, node.address, SSH_PORT)
        moved = [await self._bmc_post.go(bmc), await self._ssh_post.go(ssh)]
        self.host.stands_on(node, self._ssh_post.network)
        if not any(moved):
            return
        identity = self.host.folder.identity
        ports = {"port": self._ssh_post.port, "bmc-port": self._bmc_post.port}
        write_json(identity, {**read_json(identity), **ports})

    async def _control(self, action: str) -> None:
        machine = self.host.machine
        nodes = Path(machine.state[_NODES])
        try:
            await asyncio.to_thread(real_machine.control, nodes, machine.name, "machine", action)
        except HostsError as error:
            machine.note("power", action=f"node {action}", failed=str(error))
            _log.warning("host %s: its node: %s", machine.name, error)

    def _lost(self) -> None:
        """The process in whose network something stood has ended."""
        task = asyncio.create_task(self._settle_again())
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle_again(self) -> None:
        try:
            await self.settle()
        except HostsError as error:
            _log.warning("%s", error)
