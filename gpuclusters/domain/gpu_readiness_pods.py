"""Why a pod is not ready, in one sentence: which container, which image, what its events say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuclusters.domain.gpu_readiness_reasons import explain

Object = Mapping[str, Any]
_OVER = ("Succeeded", "Failed")
_TELLING = 2
"""Events that are shown of one pod."""


def is_ready(pod: Object) -> bool:
    """Whether the kubelet says so."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def is_over(pod: Object) -> bool:
    """Whether it has ended, and will not run again."""
    return (pod.get("status") or {}).get("phase") in _OVER


def blocked(pod: Object, events: Sequence[Object]) -> str:
    """What keeps a pod from being ready."""
    said = [*_containers(pod), *_conditions(pod)]
    told = list(_warnings(pod, events))[-_TELLING:]
    name = pod["metadata"]["name"]
    node = (pod.get("spec") or {}).get("nodeName")
    place = f" on {node}" if node else " (on no node)"
    why = "; ".join([*said, *(f"event {line}" for line in told)]) or "nothing says why"
    meaning = explain([why])
    return f"pod {name}{place}: {why}" + (f" [{meaning}]" if meaning else "")


def _containers(pod: Object) -> Iterable[str]:
    status = pod.get("status") or {}
    first = status.get("initContainerStatuses") or ()
    done = sum(1 for one in first if _ended_well(one))
    for one in first:
        if not _ended_well(one):
            yield f"Init:{done}/{len(first)}, {_state(one)}"
            return  # The others wait for this one.
    yield from (
        _state(one) for one in status.get("containerStatuses") or () if not one.get("ready")
    )


def _ended_well(status: Object) -> bool:
    ended = (status.get("state") or {}).get("terminated") or {}
    return ended.get("exitCode") == 0


def _state(status: Object) -> str:
    name, image = status.get("name", "?"), status.get("image", "?")
    state = status.get("state") or {}
    # Of a container that is started again and again, a kubelet says here why it ended. What it says
    # of the waiting is only for how long.
    last = (status.get("lastState") or {}).get("terminated")
    before = f"; before that it ended, {_ending(last)}" if last else ""
    if waiting := state.get("waiting"):
        message = f": {waiting['message']}" if waiting.get("message") else ""
        reason = waiting.get("reason", "?")
        return f"container {name} waits, {reason}{message} (image {image}){before}"
    if ended := state.get("terminated"):
        return f"container {name} ended, {_ending(ended)}"
    return f"container {name} runs and is not ready yet (image {image}){before}"


def _ending(ended: Object) -> str:
    """How a run of a container ended: what it left as its message, if anything, stands last."""
    message = str(ended.get("message") or "").strip()
    how = f"{ended.get('reason') or 'ended'} with exit code {ended.get('exitCode')}"
    return f"{how}: {message}" if message else how


def _conditions(pod: Object) -> Iterable[str]:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"not placed: {condition.get('message') or condition.get('reason')}"


def _warnings(pod: Object, events: Sequence[Object]) -> Iterable[str]:
    uid = pod["metadata"].get("uid")
    for event in events:
        about = event.get("involvedObject") or {}
        if event.get("type") == "Warning" and about.get("uid") == uid:
            yield f"{event.get('reason')}: {event.get('message')}"
