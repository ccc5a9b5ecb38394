"""Why a pod is not ready, in one sentence: which container, which image, what its events say."""

import re
from collections.abc import Iterable, Sequence

from gpuclusters.compat import known_errors
from gpuclusters.core.ports import condition, holds
from gpuclusters.gpu_operator.objects import Object

_OVER = ("Succeeded", "Failed")
_IMAGE = re.compile(r'image "([^"]+)"')
"""Events of a kubelet: `Pulling image "…"`, `Successfully pulled image "…" in 3s`."""
_TELLING = 2


def is_ready(pod: Object) -> bool:
    """Whether the kubelet says so."""
    return holds(pod, "Ready")


def is_over(pod: Object) -> bool:
    """Whether it has ended, and will not run again."""
    return (pod.get("status") or {}).get("phase") in _OVER


def blocked(pod: Object, events: Sequence[Object]) -> str:
    """What keeps a pod from being ready."""
    said = [*_containers(pod), *_conditions(pod)]
    told = list(warnings(pod, events))[-_TELLING:]
    name = pod["metadata"]["name"]
    node = (pod.get("spec") or {}).get("nodeName")
    place = f" on {node}" if node else " (on no node)"
    why = "; ".join([*said, *(f"event {line}" for line in told)]) or _at(pod)
    if pulls := _pulled_now(pod, events):
        why += f"; {pulls}"
    meaning = known_errors.advice("operator", why)
    return f"pod {name}{place}: {why}" + (f" [{meaning}]" if meaning else "")


def _containers(pod: Object) -> Iterable[str]:
    status = pod.get("status") or {}
    first = status.get("initContainerStatuses") or ()
    left = [one for one in first if not _ended_well(one)]
    if left:  # The others wait for this one.
        return [f"Init:{len(first) - len(left)}/{len(first)}, {_state(left[0])}"]
    return [_state(one) for one in status.get("containerStatuses") or () if not one.get("ready")]


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
    placed = condition(pod, "PodScheduled")
    if placed.get("status") != "False":
        return []
    return [f"not placed: {placed.get('message') or placed.get('reason')}"]


def _at(pod: Object) -> str:
    """How far a pod is that nothing keeps from starting."""
    if not (pod.get("spec") or {}).get("nodeName"):
        return "the scheduler has not placed it yet"
    if not (pod.get("status") or {}).get("containerStatuses"):
        return "its kubelet has not begun with it yet"
    ready = condition(pod, "Ready")
    why = ready.get("message") or ready.get("reason") or "its node has not said so yet"
    return f"all its containers are ready, and the pod is not: {why}"


def _pulled_now(pod: Object, events: Sequence[Object]) -> str:
    """The image that its kubelet is getting: a container's status has one word for that and for creating."""
    uid = pod["metadata"].get("uid")
    mine = [one for one in events if (one.get("involvedObject") or {}).get("uid") == uid]
    told = [(one.get("reason"), str(one.get("message"))) for one in mine]
    # In the order of their names, which is none: a pull is over when its own end was told.
    over = " ".join(message for reason, message in told if reason in ("Pulled", "Failed"))
    begun = (_IMAGE.search(message) for reason, message in told if reason == "Pulling")
    images = dict.fromkeys(found[1] for found in begun if found and f'"{found[1]}"' not in over)
    return ", ".join(f"image {image} is being pulled" for image in images)


def warnings(body: Object, events: Sequence[Object]) -> Iterable[str]:
    """What events warn of an object."""
    uid = body["metadata"].get("uid")
    for event in events:
        about = event.get("involvedObject") or {}
        if event.get("type") == "Warning" and about.get("uid") == uid:
            yield f"{event.get('reason')}: {event.get('message')}"
