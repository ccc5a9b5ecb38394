"""The process that plays the kubelets of a folder."""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

from lab.cluster import POD, ClusterError
from lab.control_plane import NodeSpec
from lab.control_plane.commands import KUBELET
from lab.control_plane.layout import Layout
from lab.control_plane.pki import CA
from lab.control_plane.ports import reserve
from lab.files import read_json, write_json
from lab.kubelet.addresses import LoopbackAddresses, PodRange
from lab.kubelet.beside import BesideNode
from lab.kubelet.device_manager import DeviceManager
from lab.kubelet.folder import KubeletFolder
from lab.kubelet.kube import Kube
from lab.kubelet.log_server import LogServer
from lab.kubelet.machine import Machine
from lab.kubelet.membership import Membership
from lab.kubelet.model import KubeletError, KubeletSpec
from lab.kubelet.network_agent import POLICIES, judge, keep_up
from lab.kubelet.node import Node
from lab.kubelet.pod_worker import PodWorker
from lab.kubelet.process import SERVER
from lab.kubelet.real_devices import RealDevices, pod_resources
from lab.kubelet.runtime import NodeRuntime
from lab.pods import rootless
from lab.written import read

_PORT = "kubelet"
_log = logging.getLogger(__name__)


class Kubelets:
    def __init__(self, folder: KubeletFolder, spec: KubeletSpec) -> None:
        self._folder = folder
        self._spec = spec
        self._layout = Layout.of(spec.control_plane)
        self._kube = Kube(self._layout, KUBELET)
        self._port = reserve(folder.ports, [_PORT])[_PORT]
        self._loopback = LoopbackAddresses()
        self._nodes: dict[str, Node] = {}
        self._beside = {name: self._beside_node(name) for name in sorted(spec.beside)}
        self._pods: dict[str, dict[str, dict[str, Any]]] = {}
        """All pods with a node, by node and uid."""
        self._listed = asyncio.Event()
        """Set when the first list of pods is complete: only now is it known whose devices are free."""
        self._logs = LogServer(self._layout, self._port, self._find)

    async def run(self, stop: asyncio.Event) -> None:
        async with self._kube:
            await self._logs.open()
            tasks: list[asyncio.Task[None]] = []
            try:
                self._nodes = {
                    spec.name: self._node(spec)
                    for spec in self._spec.played
                    if spec.name not in self._spec.joins
                }
                await asyncio.gather(*(node.open() for node in self._nodes.values()))
                tasks.append(asyncio.create_task(self._follow(stop)))
                if self._spec.joins:
                    tasks.append(asyncio.create_task(self._follow_members()))
                cluster = self._kube.cluster
                if self._beside:
                    tasks.append(asyncio.create_task(keep_up(cluster, self._spec.beside)))
                tasks += [asyncio.create_task(judge(cluster, kind)) for kind in POLICIES]
                self._tell()
                await stop.wait()
            finally:
                for task in tasks:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                self._folder.ready.unlink(missing_ok=True)
                await asyncio.gather(*(node.close() for node in self._everywhere.values()))
                await self._logs.close()

    @property
    def playing(self) -> frozenset[str]:
        return frozenset(self._nodes)

    async def begin(self, spec: NodeSpec) -> None:
        """Play a node from now on; returns when it is Ready."""
        node = self._node(spec)
        try:
            await node.open()
            # No pod starts before it is known to whom its devices were given.
            await node.known(self._pods_of(spec.name))
        except BaseException:
            await node.close()
            raise
        self._nodes[spec.name] = node
        for pod in self._pods_of(spec.name):
            node.saw(pod)

    async def cease(self, name: str) -> None:
        """Play a node no more; its pods end."""
        node = self._nodes.pop(name)
        await node.close()
        await node.known(())

    async def clear(self, name: str) -> None:
        """Delete the pods of a node that is no more."""
        await asyncio.gather(*(self._kube.remove(pod) for pod in self._pods_of(name)))

    async def _follow_members(self) -> None:
        await self._listed.wait()
        if self._spec.hosts is not None:
            joining = self._spec.joins
            specs = {spec.name: spec for spec in self._spec.played if spec.name in joining}
            members = Membership(
                self,
                self._kube.cluster,
                specs,
                self._spec.hosts,
                self._tell,
                lambda name: rootless.is_told(self._folder.path, name),
            )
            await members.follow()

    def _tell(self) -> None:
        paths = {name: str(self._reachable().node(name).path) for name in self._nodes}
        write_json(self._folder.ready, {"nodes": paths, "port": self._port})

    def _reachable(self) -> KubeletFolder:
        return self._folder.within_reach([spec.name for spec in self._spec.played])

    def _node(self, spec: NodeSpec) -> Node:
        told = asyncio.Event()
        folder = self._reachable().node(spec.name)
        runtime = NodeRuntime(
            kube=self._kube,
            folder=folder,
            devices=DeviceManager(folder, told.set),
            loopback=self._loopback,
            range=PodRange(),
            authority=self._layout.certificate(CA),
            image=self._spec.image,
            boot_seconds=self._spec.boot_seconds,
            machine=Machine(self._spec.hosts, spec.name) if self._spec.hosts else None,
            process_folder=self._folder.path,
        )
        return Node(spec, runtime, self._port, told)

    def _beside_node(self, name: str) -> BesideNode:
        if self._spec.real is None:
            raise KubeletError(f"where the real node {name} is is not said")
        file = self._folder.node(name).installations
        devices = RealDevices(pod_resources(self._spec.real, name))
        return BesideNode(name, self._kube, self._spec.hosts, devices, file)

    async def _follow(self, stop: asyncio.Event) -> None:
        try:
            async for kind, body in self._kube.cluster.watch(POD, fields="spec.nodeName!="):
                if kind == "SYNC":
                    if not self._listed.is_set():
                        for name, node in self._everywhere.items():
                            await node.known(self._pods_of(name))
                            for pod in self._pods_of(name):
                                node.saw(pod)
                        self._listed.set()
                    continue
                self._saw(kind, body)
        except Exception:  # noqa: BLE001 (whatever it is, the process must not go on without)
            # Without the watch nothing works; a process that is gone is at least noticed.
            _log.exception("the watch of pods broke")
            stop.set()

    def _saw(self, kind: str, body: dict[str, Any]) -> None:
        name, uid = body["spec"].get("nodeName", ""), body["metadata"]["uid"]
        node = self._everywhere.get(name) if self._listed.is_set() else None
        if kind == "DELETED":
            self._pods.get(name, {}).pop(uid, None)
            if node is not None:
                node.lost(uid)
        else:
            self._pods.setdefault(name, {})[uid] = body
            if node is not None:
                node.saw(body)

    @property
    def _everywhere(self) -> dict[str, Node | BesideNode]:
        """Nodes that are played, and those that have a real kubelet."""
        return {**self._nodes, **self._beside}

    def _pods_of(self, node: str) -> list[dict[str, Any]]:
        return [*self._pods.get(node, {}).values()]

    def _find(self, namespace: str, name: str) -> PodWorker | None:
        found = (node.find(namespace, name) for node in self._nodes.values())
        return next((worker for worker in found if worker is not None), None)


def serve(path: Path) -> None:
    """Play in this process until SIGTERM or SIGINT.

    Raises:
        KubeletError: another process plays the kubelets of this folder.
    """
    folder = KubeletFolder(path)

    async def play(stop: asyncio.Event) -> None:
        _log.info(
            "this is a stand-in of kubelets: nodes are played, most pods are only said to run"
        )
        await Kubelets(folder, read(KubeletSpec, read_json(folder.specs))).run(stop)

    try:
        SERVER.run(folder, play)
    except ClusterError as error:
        raise KubeletError(f"the kubelets cannot work: {error}") from error
