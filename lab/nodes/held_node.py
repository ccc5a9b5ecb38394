"""One node as the process that holds it sees it: its folder, its first process, what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from lab.control_plane import NodeSpec
from lab.control_plane.layout import Layout
from lab.nodes import configuration, identity
from lab.nodes.folder import API, REGISTRY, RealNodeFolder, port_socket
from lab.nodes.links import Switch
from lab.nodes.model import Devices, NodesError
from lab.nodes.network import API_SERVICE, MACHINE, REGISTRY_PORT

_PROJECT = Path(__file__).resolve().parents[2]
_ANSWER_SECONDS = 90.0
_NAMED = {
    "bridge": "cni-bridge",
    "host-local": "cni-host-local",
    "runc": "runc",
    "ctr": "ctr",
    "containerd-shim-runc-v2": "containerd-shim-runc-v2",
}
"""Programs that a node's programs call, under the names by which they call them."""


@dataclass
class HeldNode:
    """One node."""

    spec: NodeSpec
    folder: RealNodeFolder
    address: str
    cgroup: str
    programs: Mapping[str, Path]
    layout: Layout
    port: int
    """Of the API server, on the machine's loopback and on the node's."""
    images: tuple[Path, ...]
    devices: Devices
    ports: tuple[int, ...]
    log: Path
    pid: int = 0
    """Its first process as the machine sees it."""
    _process: asyncio.subprocess.Process | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.spec.name

    @property
    def is_alive(self) -> bool:
        """Whether its first process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self, switch: Switch) -> None:
        """Namespaces, mounts, cable, containerd with its images, kubelet; returns when both were started.

        Raises:
            NodesError: something of it failed, with the reason.
        """
        self._write()
        # A pod that the node had before has no process any more; what it had in memory is gone too.
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(
                    "unshare",
                    "--net",
                    "--mount",
                    "--pid",
                    "--uts",
                    "--ipc",
                    "--fork",
                    "--kill-child",
                ),
                *("--mount-proc", sys.executable, "-m", "lab.nodes.first_process"),
                str(self.folder.path),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(_PROJECT), "PYTHONDONTWRITEBYTECODE": "1"},
            )
        await self._answer()
        self.pid = psutil.Process(self._process.pid).children()[0].pid
        switch.plug(self.pid, self.address)
        await self._told("")

    async def ask(self, program: str, action: str) -> dict[str, Any]:
        """Start, stop or restart a program of the node; gives its answer, `error` in it if it failed."""
        async with self._asking:
            try:
                return await self._told(json.dumps({"program": program, "action": action}))
            except NodesError as error:
                return {"error": str(error)}

    def kill(self) -> None:
        """End it with all that runs in it."""
        for pid in filter(None, (self.pid, self._process.pid if self._process else 0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _told(self, line: str) -> dict[str, Any]:
        if self._process is None or self._process.stdin is None:
            raise NodesError(f"node {self.name} does not run")
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()
        return await self._answer()

    async def _answer(self) -> dict[str, Any]:
        if self._process is None or self._process.stdout is None:
            raise NodesError(f"node {self.name} does not run")
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), _ANSWER_SECONDS)
        except TimeoutError:
            raise NodesError(
                f"node {self.name} did not answer within {_ANSWER_SECONDS:.0f} s; see {self.log}"
            ) from None
        if not line:
            raise NodesError(f"node {self.name} ended; see {self.log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise NodesError(f"node {self.name}: {answer['error']}")
        return answer

    def _write(self) -> None:
        """All files that the node starts from."""
        folder = self.folder
        for path in (folder.path, folder.networks, folder.plugins, folder.cdi):
            path.mkdir(parents=True, exist_ok=True)
        # Its pods' addresses are known once it has joined, and may be others than before.
        for old in folder.networks.iterdir():
            old.unlink()
        for name, tool in _NAMED.items():
            link = folder.plugins / name
            link.unlink(missing_ok=True)
            link.symlink_to(self.programs[tool])
        identity.issue(self.layout, folder, self.address)
        runc = folder.plugins / "runc"
        folder.containerd_configuration.write_text(configuration.containerd(folder, runc))
        folder.kubelet_configuration.write_text(
            configuration.kubelet(folder, self.spec, self.cgroup)
        )
        (folder.registries / "_default").mkdir(parents=True, exist_ok=True)
        hosts = folder.registries / "_default" / "hosts.toml"
        hosts.write_text(configuration.registry(MACHINE, REGISTRY_PORT))
        folder.kubeconfig.write_text(configuration.kubeconfig(folder, self.port))
        boot = {
            "programs": configuration.programs(folder, self.address, self.programs),
            "ctr": str(self.programs["ctr"]),
            "images": [str(image) for image in self.images],
            "devices": {path: list(numbers) for path, numbers in self.devices.items()},
            "keep": self._keep(),
            "doors": self._doors(),
        }
        folder.boot.write_text(json.dumps(boot, indent=2))

    def _doors(self) -> list[tuple[str, int, str]]:
        """Where the node listens, and the socket that each door leads to, from the folder of the lab."""
        doors = [
            ("127.0.0.1", self.port, API),
            (API_SERVICE, 443, API),
            (MACHINE, REGISTRY_PORT, REGISTRY),
        ]
        return doors + [(MACHINE, port, port_socket(port)) for port in self.ports]

    def _keep(self) -> list[str]:
        """Folders that the node reaches under the machine's paths wherever they lie."""
        ours = {_PROJECT, Path(sys.prefix), Path(sys.base_prefix), self.folder.path.parent}
        programs = {path.parent for path in self.programs.values()}
        images = {image.parent for image in self.images}
        return sorted(map(str, ours | programs | images))
