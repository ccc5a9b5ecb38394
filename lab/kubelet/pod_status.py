"""What a kubelet writes into the status of a pod, as bodies for server-side apply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lab.control_plane.ports import LOOPBACK
from lab.kubelet.node_objects import timestamp

Pod = Mapping[str, Any]
TERMINAL = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container at a moment. `since` is when it started, or stopped, or None while it waits."""

    name: str
    image: str
    ready: bool = False
    restarts: int = 0
    waiting: str = ""
    """Reason why it does not run; empty when it runs or has ended."""
    message: str = ""
    reason: str = ""
    """Why it ended, where its exit code is not its own: `StartError`; `message` says more then."""
    started: datetime | None = None
    finished: datetime | None = None
    exit_code: int = 0
    last_exit: tuple[int, datetime, datetime] | None = None
    """Exit code, start and end of the run before."""

    def document(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.ready,
            "started": self.started is not None and self.finished is None and not self.waiting,
            "restartCount": self.restarts,
        }
        if self.waiting:
            state = {"waiting": {"reason": self.waiting, "message": self.message}}
        elif self.finished is not None and self.started is not None:
            over = _terminated(self.exit_code, self.started, self.finished)
            told = {"reason": self.reason, "message": self.message} if self.reason else {}
            state = {"terminated": over | told}
        elif self.started is not None:
            state = {"running": {"startedAt": timestamp(self.started)}}
        else:
            state = {"waiting": {"reason": "ContainerCreating"}}
        status["state"] = state
        if self.last_exit is not None:
            status["lastState"] = {"terminated": _terminated(*self.last_exit)}
        return status


class Conditions:
    """The conditions of a pod; each keeps the time of its last change."""

    def __init__(self, pod: Pod) -> None:
        self._kept = {
            found["type"]: (found["status"], found.get("lastTransitionTime"), found.get("reason"))
            for found in pod.get("status", {}).get("conditions", [])
        }

    def documents(self, values: Mapping[str, bool], reason: str = "") -> list[dict[str, Any]]:
        """These conditions as they are now; `reason` is that of the false ones."""
        now = timestamp(datetime.now(UTC))
        result = []
        for kind, value in values.items():
            status = str(value)
            known = self._kept.get(kind)
            since = known[1] if known is not None and known[0] == status and known[1] else now
            self._kept[kind] = (status, since, None)
            told = {"reason": reason} if reason and not value else {}
            result.append({"type": kind, "status": status, "lastTransitionTime": since, **told})
        return result


def rejected(pod: Pod, reason: str, message: str) -> dict[str, Any]:
    """A pod that was not admitted."""
    return _body(
        pod,
        {
            "phase": "Failed",
            "reason": reason,
            "message": f"Pod was rejected: {message}",
            "startTime": timestamp(datetime.now(UTC)),
        },
    )


def running(
    pod: Pod,
    conditions: Conditions,
    containers: Sequence[ContainerState],
    *,
    address: str = "",
    sandbox: bool = True,
    first: Sequence[ContainerState] = (),
) -> dict[str, Any]:
    """A pod that was admitted; its phase and conditions follow from its containers. `first` are its inits."""
    phase = _phase(pod, containers)
    all_ready = bool(containers) and all(container.ready for container in containers)
    over = phase in TERMINAL
    ready_reason = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
    gates = {gate["conditionType"]: True for gate in pod["spec"].get("readinessGates") or ()}
    values = {
        "PodReadyToStartContainers": sandbox and not over,
        "Initialized": True,
        "ContainersReady": all_ready,
        "Ready": all_ready,
        **gates,
    }
    status: dict[str, Any] = {
        "phase": phase,
        "startTime": pod.get("status", {}).get("startTime") or timestamp(datetime.now(UTC)),
        "hostIP": LOOPBACK,
        "hostIPs": [{"ip": LOOPBACK}],
        "conditions": conditions.documents(values, ready_reason),
        "containerStatuses": [container.document() for container in containers],
    }
    if first:
        status["initContainerStatuses"] = [container.document() for container in first]
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    return _body(pod, status)


def _phase(pod: Pod, containers: Sequence[ContainerState]) -> str:
    ended = [c for c in containers if c.finished is not None and not c.waiting]
    if containers and len(ended) == len(containers):
        return "Failed" if any(c.exit_code for c in ended) else "Succeeded"
    if pod.get("status", {}).get("phase") == "Running":
        return "Running"
    return "Running" if any(c.started is not None for c in containers) else "Pending"


def _terminated(code: int, started: datetime, finished: datetime) -> dict[str, Any]:
    return {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": timestamp(started),
        "finishedAt": timestamp(finished),
    }


def _body(pod: Pod, status: dict[str, Any]) -> dict[str, Any]:
    metadata = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
        "status": status,
    }
