"""The life of operands' pods: what each waits for, how long it takes, what keeps it from being ready."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from lab.cluster import POD
from lab.gpu_operator import pods, toolkit
from lab.gpu_operator.faults import DriverSlow, ImagePull, NeverReady, NodeFails
from lab.gpu_operator.operands import (
    DRIVER,
    OPERANDS,
    PLAYER,
    PLUGIN,
    TOOLKIT,
    Operand,
    image,
)
from lab.gpu_operator.pods import Stand
from lab.gpu_operator.real_nodes import CONTAINERD, RealNode, RealNodes
from lab.gpu_operator.view import View
from lab.kubelet.kube import Kube
from lab.kubelet.node import PLAYED_BY

RKE2_SOCKET: Final = "/run/k3s/containerd/containerd.sock"
Object = Mapping[str, Any]


class Player:
    """Plays all pods of operands; those of real nodes are told what to do, and their kubelets say it.

    `installed` is awaited when the toolkit came to a node, or is to be there as another policy says.
    """

    def __init__(
        self,
        kube: Kube,
        step_seconds: float,
        installed: Callable[[str, View], Awaitable[None]],
        real: RealNodes | None = None,
    ) -> None:
        self._kube = kube
        self._step = step_seconds
        self._installed = installed
        self._real = real
        self._began: dict[str, float] = {}
        self._written: dict[str, Stand] = {}

    async def bury(self) -> None:
        """Confirm the end of pods that were deleted, as kubelets do, also when nobody wants any more."""
        names = ",".join(operand.name for operand in OPERANDS)
        for pod in await self._kube.cluster.list(POD, labels=f"app in ({names})"):
            played = (pod["metadata"].get("annotations") or {}).get(PLAYED_BY) == PLAYER
            gone = played and "deletionTimestamp" in pod["metadata"]
            if gone and self._node(pod["spec"].get("nodeName", "")) is None:
                await self._kube.remove(pod)

    async def play(self, view: View) -> None:
        known = {pod["metadata"]["uid"] for pod in view.pods}
        self._began = {uid: when for uid, when in self._began.items() if uid in known}
        self._written = {uid: stand for uid, stand in self._written.items() if uid in known}
        if self._real is not None:
            self._real.refuse(view.machines, refused(view))
        for name in view.machines:
            if (real := self._node(name)) is not None:
                real.forget([*known])
        for pod in view.pods:
            if "deletionTimestamp" in pod["metadata"]:
                continue
            operand = _operand(pod)
            node = pod["spec"].get("nodeName")
            if operand is not None and node in view.machines:
                await self._write(pod, await self._stand(view, operand, node, pod))

    async def _stand(self, view: View, operand: Operand, node: str, pod: Object) -> Stand:
        done = inits_done(view, operand, node)
        if done < len(operand.waits_for):
            return Stand(done)
        real = self._node(node)
        stopped = trouble(view, operand, node, done, real)
        if stopped is not None:
            return stopped
        began = self._began.setdefault(pod["metadata"]["uid"], time.monotonic())
        if time.monotonic() - began < self._step + slowness(view, operand, node):
            return Stand(done)
        memory = view.memory
        if operand is DRIVER and memory.drivers.get(node) != _image(pod):
            memory.drivers[node] = _image(pod)
            memory.save()
        # A host that was installed anew has it no more, whatever is remembered.
        if real is not None and self._real is not None and self._real.lost_toolkit(real):
            memory.toolkits.pop(node, None)
        default = toolkit.is_default(view.spec)
        # With another environment its pods are other ones, which install it once more.
        if operand is TOOLKIT and memory.toolkits.get(node) is not default:
            if not (view.spec.get("cdi") or {}).get("nriPluginEnabled"):
                await self._installed(node, view)
            memory.toolkits[node] = default
            memory.save()
        return Stand(done, ready=True)

    def _node(self, name: str) -> RealNode | None:
        return None if self._real is None else self._real.of(name)

    async def _write(self, pod: Object, stand: Stand) -> None:
        real = self._node(pod["spec"]["nodeName"])
        if real is not None:
            real.tell(pod, stand)
            return
        uid = pod["metadata"]["uid"]
        if self._written.get(uid) == stand and (pod.get("status") or {}).get("containerStatuses"):
            return
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        if not await self._kube.set_status(body | {"status": pods.status(pod, stand)}):
            return
        if stand.reason and self._written.get(uid) != stand:
            kind = "Failed" if stand.reason == "ImagePullBackOff" else "BackOff"
            await self._kube.event(pod, kind, stand.message, warning=True)
        self._written[uid] = stand


def _operand(pod: Object) -> Operand | None:
    app = (pod["metadata"].get("labels") or {}).get("app")
    return next((operand for operand in OPERANDS if operand.name == app), None)


def has_driver(view: View, node: str) -> bool:
    """Whether GPUs can be used: by the host's driver, or by that of a container that is ready."""
    if view.has_host_driver(node):
        return view.state(node).usable > 0
    return view.runs(DRIVER, node)


def inits_done(view: View, operand: Operand, node: str) -> int:
    """How many of its init containers have ended well; they run one after the other."""
    holds = {
        "k8s-driver-manager": True,
        "driver-validation": has_driver(view, node),
        "toolkit-validation": view.runs(TOOLKIT, node),
        "cuda-validation": view.runs(TOOLKIT, node),
        "plugin-validation": view.runs(PLUGIN, node)
        and not any(isinstance(f, NeverReady) and f.concerns(node) for f in view.faults),
    }
    done = 0
    for name in operand.waits_for:
        if not holds[name]:
            break
        done += 1
    return done


def trouble(
    view: View, operand: Operand, node: str, done: int, real: RealNode | None = None
) -> Stand | None:
    """What keeps a container from running, or None."""
    for fault in view.faults:
        if not fault.concerns(node):
            continue
        if isinstance(fault, ImagePull) and fault.operand == operand.name:
            shown = _image(view.pod(operand, node) or {})
            return Stand(
                done, reason="ImagePullBackOff", message=f'Back-off pulling image "{shown}"'
            )
        if isinstance(fault, NodeFails) and operand is PLUGIN:
            return Stand(done, reason="CrashLoopBackOff", message=fault.message, exit_code=1)
    if operand is TOOLKIT and not _finds_containerd(view, real):
        message = (
            "error signaling containerd: unable to dial: dial unix "
            f"{CONTAINERD}: connect: no such file or directory"
        )
        return Stand(done, reason="CrashLoopBackOff", message=message, exit_code=1)
    return None


def refused(view: View) -> frozenset[str]:
    """Images, without tags, that cannot be had by a fault."""
    faulty = {fault.operand for fault in view.faults if isinstance(fault, ImagePull)}
    shown = [image(operand, view.policy) for operand in view.operands if operand.name in faulty]
    return frozenset(one.rpartition(":")[0] for one in shown)


def _finds_containerd(view: View, real: RealNode | None) -> bool:
    """RKE2's containerd listens elsewhere than the toolkit looks, unless it is told (gpu-operator#406).

    Played nodes are RKE2's.
    """
    if (view.spec.get("cdi") or {}).get("nriPluginEnabled"):
        return True
    env = (view.spec.get("toolkit") or {}).get("env") or ()
    told = {e["name"]: e.get("value") for e in env}.get("CONTAINERD_SOCKET", CONTAINERD)
    return told == RKE2_SOCKET if real is None else real.has(told)


def slowness(view: View, operand: Operand, node: str) -> float:
    if operand is not DRIVER:
        return 0.0
    return sum(f.seconds for f in view.faults if isinstance(f, DriverSlow) and f.concerns(node))


def _image(pod: Object) -> str:
    containers: list[dict[str, Any]] = (pod.get("spec") or {}).get("containers") or [{}]
    return str(containers[0].get("image", ""))
