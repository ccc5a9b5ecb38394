"""One node as the process that holds it sees it: its machine on and off, its programs, what it is told."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from lab.control_plane import NodeSpec
from lab.nodes import cgroups, configuration, image_store, node_files
from lab.nodes.distribution import UPSTREAM, Distribution
from lab.nodes.links import Switch
from lab.nodes.model import Devices, NodesError
from lab.nodes.node_files import PROJECT, Place, Surroundings

_ANSWER_SECONDS = 600.0
"""Large images may have to be unpacked, several times at once."""
_END_SECONDS = 60.0
_POLL_SECONDS = 0.02
_log = logging.getLogger(__name__)
_UNSHARED = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child")


@dataclass
class HeldNode:
    spec: NodeSpec
    place: Place
    around: Surroundings
    devices: Devices
    images: tuple[Path, ...] = ()
    """What it was given when its programs began, and later."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    distribution: Distribution = UPSTREAM
    pid: int = 0
    """Its first process as the machine sees it; 0 when it is off."""
    _process: asyncio.subprocess.Process | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _requests: int = 0
    """How often something was asked: an answer bears the number of its request."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_on(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def switch_on(self, switch: Switch) -> None:
        """Namespaces, mounts and cable; what a node had in memory before is gone.

        Raises:
            NodesError: something of it failed, with the reason.
        """
        cgroups.make(self.place.cgroup)
        try:
            node_files.write_boot(self.place, self.around, self.spec, self.devices, self.images)
        except ValueError as error:
            raise NodesError(f"node {self.name}: {error}") from error
        with self.around.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *("unshare", *_UNSHARED, "--mount-proc"),
                *(sys.executable, "-m", "lab.nodes.first_process", str(self.place.folder.path)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"},
            )
        self._requests = 0
        try:
            await self._answer()
            self.pid = psutil.Process(self._process.pid).children()[0].pid
            switch.plug(self.place.number, self.pid, self.place.address)
        except (NodesError, IndexError, psutil.Error) as error:
            await self.switch_off(switch)
            raise NodesError(f"node {self.name}: its machine cannot be made: {error}") from error

    async def switch_off(self, switch: Switch) -> None:
        """End it with all that runs in it; also where something else is still in its network."""
        self.kill()
        if self._process is not None:
            await asyncio.wait_for(self._process.wait(), _END_SECONDS)
        await self._gone()
        self.pid, self._process = 0, None
        switch.unplug(self.place.number)
        left = await asyncio.to_thread(cgroups.remove, self.place.cgroup)
        if left:
            raise NodesError(f"node {self.name}: {', '.join(left)} cannot be removed")

    async def _gone(self) -> None:
        """Wait for the first process, which outlives its parent for a moment."""
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.pid) if self.pid else None
            while first is not None and first.status() != psutil.STATUS_ZOMBIE:
                await asyncio.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """Send the end to it, and do not wait for it."""
        for pid in filter(None, (self.pid, self._process.pid if self._process else 0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def open(self, ports: tuple[int, ...]) -> None:
        """Lead to the API server, the registry and these ports of the machine."""
        await self._told({"do": "open", "doors": node_files.doors(self.around, ports)})

    async def cut_off(self, *, cut: bool) -> None:
        """Its cable is out, or in again: what leads to the machine without it goes with it."""
        await self._told({"do": "cut", "cut": cut})

    async def begin(self, spec: NodeSpec, distribution: Distribution) -> None:
        """Start containerd with its images, then the other programs; `spec` is what the node registers as."""
        self.distribution = distribution
        place, around = self.place, self.around
        node_files.write_programs(place, around, spec, distribution)
        self._prepare()
        disk = node_files.on_the_machine(place, distribution, Path(distribution.containerd_root))
        await asyncio.to_thread(image_store.furnish, disk, self.images, around.programs, _log.info)
        lines = configuration.programs(place.folder, place.address, around.programs, distribution)
        await self._told(
            {
                "do": "begin",
                "programs": {
                    name: asdict(line)
                    for name, line in lines.items()
                    if name not in around.network.replaces
                },
                "bound": node_files.bound(place, distribution),
                "folders": [distribution.kubelet_drop_ins],
                "mounts": dict(around.network.mounts(place.cgroup)),
                **self._given(),
            }
        )

    async def cease(self, *, containers: bool) -> None:
        """Stop its programs; with `containers` all that they started, and forget what they kept."""
        await self._told({"do": "cease", "containers": containers})
        if containers:
            await asyncio.to_thread(node_files.forget_disk, self.place.folder)

    async def load(self) -> None:
        """Give a node whose programs run the images and names that it has not."""
        await self._told({"do": "load", **self._given()})

    async def program(self, program: str, action: str) -> dict[str, Any]:
        """Start, stop or restart a program of the node, or ask for it: `pid`, `wanted`, `words`.

        Raises:
            NodesError: there is no such program, or it ended again; with its last words.
        """
        if program == "containerd" and action in ("start", "restart"):
            self._prepare()
        return await self._told({"do": "program", "program": program, "action": action})

    def _prepare(self) -> None:
        """What the distribution of the host generates when it starts."""
        if self.distribution.prepare is not None and self.place.root is not None:
            try:
                self.distribution.prepare(self.place.folder, self.place.root)
            except ValueError as error:
                raise NodesError(f"node {self.name}: {error}") from error

    def _given(self) -> dict[str, Any]:
        return {
            "ctr": str(self.around.programs["ctr"]),
            "socket": self.distribution.containerd_socket,
            "root": self.distribution.containerd_root,
            "images": [str(image) for image in self.images],
            "aliases": dict(self.aliases),
        }

    async def _told(self, request: Mapping[str, Any]) -> dict[str, Any]:
        # Whoever asked may be cancelled; what the node does with the request is known all the same.
        return await asyncio.shield(asyncio.ensure_future(self._asked(request)))

    async def _asked(self, request: Mapping[str, Any]) -> dict[str, Any]:
        async with self._asking:
            if self._process is None or self._process.stdin is None:
                raise NodesError(f"node {self.name} is switched off")
            self._requests += 1
            try:
                numbered = {**request, "number": self._requests}
                self._process.stdin.write(json.dumps(numbered).encode() + b"\n")
                await self._process.stdin.drain()
            except OSError:
                raise NodesError(f"node {self.name} ended; see {self.around.log}") from None
            return await self._answer()

    async def _answer(self) -> dict[str, Any]:
        if self._process is None or self._process.stdout is None:
            raise NodesError(f"node {self.name} is switched off")
        number, answer = self._requests, dict[str, Any]()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                # Before it may come answers for which nobody waited long enough.
                while answer.get("number") != number:
                    line = await self._process.stdout.readline()
                    if not line:
                        raise NodesError(f"node {self.name} ended; see {self.around.log}")
                    answer = json.loads(line)
        except TimeoutError:
            raise NodesError(
                f"node {self.name} did not answer within {_ANSWER_SECONDS:.0f} s; "
                f"see {self.around.log}"
            ) from None
        if "error" in answer:
            raise NodesError(f"node {self.name}: {answer['error']}")
        return answer
