"""The operator: looks at policy, nodes and machines, and takes everything one step further, and again."""

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.cluster import (
    CONFIG_MAP,
    DAEMON_SET,
    DEPLOYMENT,
    NODE,
    POD,
    ClusterError,
    ObjectKind,
)
from lab.gpu_operator import (
    device_nodes,
    driver_update,
    exporter,
    faults,
    labelling,
    operands,
    policy,
    sharing,
    toolkit,
)
from lab.gpu_operator.labelling import Labels
from lab.gpu_operator.machines import Machines
from lab.gpu_operator.mig_manager import MigManagers
from lab.gpu_operator.operands import DRIVER, OPERANDS, PLUGIN, TOOLKIT
from lab.gpu_operator.playing import Player
from lab.gpu_operator.plugin import NodePlugins
from lab.gpu_operator.real_nodes import RealNode, RealNodes
from lab.gpu_operator.view import Memory, View, is_ready, labels
from lab.kubelet.folder import KubeletFolder
from lab.kubelet.kube import Kube

CLUSTER_POLICY = ObjectKind("nvidia.com/v1", "clusterpolicies", "ClusterPolicy", namespaced=False)
MANAGER = "gpu-operator"
_IDLE_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Operator:
    """One operator for the machines of one lab."""

    def __init__(
        self,
        kube: Kube,
        machines: Machines,
        folder: Path,
        kubelets: KubeletFolder,
        step_seconds: float,
        real: RealNodes | None = None,
    ) -> None:
        self._kube = kube
        self._cluster = kube.cluster
        self._machines = machines
        self._folder = folder
        self._kubelets = kubelets
        self._step = step_seconds
        self._memory = Memory.of(folder / "state.json")
        self._labels = Labels(kube.cluster)
        self._real = real
        self._player = Player(kube, step_seconds, self._installed, real)
        self._mig = MigManagers(machines, self._labels)
        self._plugins: dict[str, NodePlugins] = {}
        self._applied: dict[str, str] = {}
        self._seen: object = None

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; an API server that is away is waited for."""
        try:
            while not stop.is_set():
                pause = _IDLE_SECONDS
                try:
                    if await self.look():
                        pause = self._step / 2
                except ClusterError as error:
                    _log.warning("looks again: %s", error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await stop.wait()
        finally:
            await self._end_plugins()

    async def look(self) -> bool:
        """One look; False if there is no operator in the cluster."""
        await self._player.bury()
        wanted = _served(await self._cluster.list(CLUSTER_POLICY))
        machines = await asyncio.to_thread(self._machines.gpus)
        namespace = await self._discover(machines)
        if wanted is None or not namespace:
            self._memory.forget()
            self._applied.clear()
            await self._end_plugins()
            return bool(namespace)
        view = await self._view(namespace, wanted, machines)
        await self._deploy(view)
        await self._player.play(view)
        await driver_update.look(view, self._labels, self._cluster)
        divided = await self._mig.look(view)
        await self._offer(view, divided)
        view = await self._view(namespace, wanted, machines)
        await self._tell(view)
        before, self._seen = self._seen, _fingerprint(view)
        return before != self._seen or bool(divided)

    async def _discover(self, machines: Mapping[str, Any]) -> str:
        """Label nodes whose worker of node feature discovery runs; the operator's namespace, if it runs."""
        workers = await self._cluster.list(
            POD, labels="app.kubernetes.io/name=node-feature-discovery,role=worker"
        )
        there = {str(n["metadata"]["name"]) for n in await self._cluster.list(NODE)}
        for pod in workers:
            node = pod["spec"].get("nodeName", "")
            if node in machines and node in there and is_ready(pod):
                found = labelling.discovered(machines[node])
                await self._labels.put("nfd-master", node, found)
        for node in machines.keys() - there:
            self._labels.forget(node)
        deployments = await self._cluster.list(
            DEPLOYMENT, labels="app.kubernetes.io/component=gpu-operator"
        )
        running = [d for d in deployments if (d.get("status") or {}).get("readyReplicas")]
        return str(running[0]["metadata"]["namespace"]) if running else ""

    async def _view(
        self, namespace: str, wanted: Mapping[str, Any], machines: Mapping[str, Any]
    ) -> View:
        pods, nodes, configs, current = await asyncio.gather(
            self._cluster.list(POD, namespace),
            self._cluster.list(NODE),
            self._cluster.list(CONFIG_MAP, namespace),
            self._cluster.get(CLUSTER_POLICY, wanted["metadata"]["name"]),
        )
        mine = {str(node["metadata"]["name"]): node for node in nodes}
        names = {operand.name for operand in OPERANDS}
        return View(
            namespace=namespace,
            policy=current or wanted,
            nodes={name: mine[name] for name in machines if name in mine},
            machines={name: machines[name] for name in machines if name in mine},
            pods=[p for p in pods if (p["metadata"].get("labels") or {}).get("app") in names],
            configs={c["metadata"]["name"]: c.get("data") or {} for c in configs},
            faults=faults.read(self._folder),
            memory=self._memory,
        )

    async def _deploy(self, view: View) -> None:
        """Labels of nodes, DaemonSets of operands, what goes with the exporter."""
        for node in view.gpu_nodes:
            await self._labels.put(MANAGER, node, labelling.deployed(view, node))
            if layout := labelling.default_layout(view, node):
                await self._labels.change(node, {labelling.MIG_CONFIG: layout})
        for one in view.operands:
            real = any(self._node(node) for node in view.machines)
            wanted = operands.daemon_set(one, view.policy, view.namespace, real=real)
            await self._apply(DAEMON_SET, wanted)
        left = {operand.name for operand in OPERANDS} - {one.name for one in view.operands}
        for name in left:
            if self._applied.pop(f"{DAEMON_SET.plural}/{name}", None):
                await self._cluster.delete(DAEMON_SET, name, view.namespace)
        for kind, body in exporter.objects(view):
            await self._apply(kind, body)

    async def _apply(self, kind: ObjectKind, body: Mapping[str, Any]) -> None:
        key = f"{kind.plural}/{body['metadata']['name']}"
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        if self._applied.get(key) == digest:
            return
        try:
            await self._cluster.apply(kind, body, manager=MANAGER)
        except ClusterError as error:
            if error.status != 404 or kind not in exporter.OPTIONAL:
                raise
            return  # Skipped while the kind does not exist, and tried again.
        self._applied[key] = digest

    async def _offer(self, view: View, divided: frozenset[str]) -> None:
        """Devices of nodes whose plugin runs, and the labels that tell of them."""
        strategy = str((view.spec.get("mig") or {}).get("strategy", "single"))
        for node in view.gpu_nodes:
            _, text = labelling.config(view, "devicePlugin", node)
            shared = sharing.Sharing.of(text)
            works = view.runs(PLUGIN, node) and view.runs(TOOLKIT, node) and node not in divided
            found = sharing.devices(view.state(node), strategy, shared) if works else {}
            real = self._node(node)
            folder = self._kubelets.node(node).device_plugins
            if real is not None:
                await asyncio.to_thread(device_nodes.provide, real, found)
                folder = real.device_plugins
            plugins = self._plugins.get(node)
            if plugins is not None and plugins.folder != folder:
                # The machine was switched off and on: this plugin ended with it.
                await self._plugins.pop(node).close()
            if node not in self._plugins and found:
                self._plugins[node] = NodePlugins(folder)
            if node in self._plugins:
                self._plugins[node].offer(found)
            if works:
                await self._labels.put("gfd", node, labelling.features(view, node, shared))

    def _node(self, name: str) -> RealNode | None:
        return None if self._real is None else self._real.of(name)

    async def _installed(self, node: str, view: View) -> None:
        """The toolkit's container did its work: RKE2 is to find what it left."""
        real = self._node(node)
        if real is not None and self._real is not None:
            await self._real.install_toolkit(real, default=toolkit.is_default(view.spec))
        await self._machines.restart_rke2(node)

    async def _tell(self, view: View) -> None:
        waiting = []
        for operand in view.operands:
            nodes = [n for n in view.gpu_nodes if _is_wanted(view, operand, n)]
            if not all(view.runs(operand, node) for node in nodes):
                waiting.append(operand.state)
        status = policy.status(
            view.policy,
            view.namespace,
            has_nfd_labels=any(
                key.startswith(labelling.NFD) for n in view.nodes.values() for key in labels(n)
            ),
            has_gpu_nodes=bool(view.gpu_nodes),
            not_ready=waiting,
        )
        if status != view.policy.get("status"):
            await self._cluster.patch(
                CLUSTER_POLICY,
                view.policy["metadata"]["name"],
                "",
                {"status": status},
                subresource="status",
            )

    async def _end_plugins(self) -> None:
        for plugins in self._plugins.values():
            await plugins.close()
        self._plugins = {}


def _fingerprint(view: View) -> object:
    pods = sorted(str(pod["metadata"]["resourceVersion"]) for pod in view.pods)
    nodes = {name: (dict(labels(n)), n["spec"]) for name, n in view.nodes.items()}
    ready = (view.policy.get("status") or {}).get("state") == "ready"
    generation = view.policy["metadata"].get("generation")
    # What takes its time looks the same until it is done.
    moving = None if ready else object()
    return (pods, nodes, dict(view.machines), view.configs, list(view.faults), generation, moving)


def _served(policies: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The policy that counts: the first; clusterpolicy_controller.go sets others to `ignored`."""
    return min(policies, key=lambda p: p["metadata"]["creationTimestamp"], default=None)


def _is_wanted(view: View, operand: operands.Operand, node: str) -> bool:
    if operand is DRIVER and view.has_host_driver(node):
        return False
    return labels(view.nodes[node]).get(operands.DEPLOY + operand.label) == "true"
