"""The status of an operand's pod, as a kubelet would write it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lab.kubelet.node_objects import timestamp

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stand:
    inits_done: int = 0
    """How many of its init containers have ended well."""
    ready: bool = False
    reason: str = ""
    """Why a container waits, like `ImagePullBackOff`; empty: it runs."""
    message: str = ""
    exit_code: int | None = None
    """Of the container's last run, if it fails again and again."""


def status(pod: Object, stand: Stand) -> dict[str, Any]:
    spec, now = pod["spec"], timestamp(datetime.now(UTC))
    inits = [
        _container(one, _init_state(number, stand, now), ready=number < stand.inits_done)
        for number, one in enumerate(spec.get("initContainers") or ())
    ]
    through = stand.inits_done >= len(inits)
    state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
    if through and stand.reason:
        state = {"waiting": {"reason": stand.reason, "message": stand.message}}
    elif through:
        state = {"running": {"startedAt": now}}
    containers = [_container(one, state, ready=stand.ready) for one in spec["containers"]]
    if through and stand.exit_code is not None:
        for one in containers:
            one["restartCount"] = 3
            one["lastState"] = {"terminated": {"exitCode": stand.exit_code, "reason": "Error"}}
    values = {"Initialized": through, "ContainersReady": stand.ready, "Ready": stand.ready}
    return {
        "phase": "Running" if through and not stand.reason else "Pending",
        "startTime": now,
        "conditions": [
            {"type": kind, "status": str(value), "lastTransitionTime": now}
            for kind, value in {"PodScheduled": True, **values}.items()
        ],
        "initContainerStatuses": inits,
        "containerStatuses": containers,
    }


def _init_state(number: int, stand: Stand, now: str) -> dict[str, Any]:
    if number < stand.inits_done:
        return {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}
    if number == stand.inits_done:
        return {"running": {"startedAt": now}}
    return {"waiting": {"reason": "PodInitializing"}}


def _container(container: Object, state: Mapping[str, Any], *, ready: bool) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "restartCount": 0,
        "state": dict(state),
    }
