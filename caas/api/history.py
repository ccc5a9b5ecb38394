"""What happened to a container, from Kubernetes' events, without what they say about machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuclusters.domain.ports import ObjectKind

EVENT = ObjectKind("", "v1", "events", "Event", namespaced=True)

# About the image and the process, in words of the kubelet and ours that name neither node nor device. No
# failures: why a registry did not answer would tell about the machine's network.
_AS_IT_IS = frozenset({"Pulling", "Pulled", "Created", "Started", "Killing", "StartTimedOut"})
# How full the cluster is, and with what, is the operator's business.
_NOT_TOLD = frozenset({"FailedScheduling"})
_LONGEST = 1024


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened, once or several times. Times are RFC 3339."""

    time: str
    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str | None
    """None where only the reason is for the tenant."""
    count: int


def history(events: Iterable[Mapping[str, Any]], hosts: Iterable[str]) -> list[Happening]:
    """The events of one pod, oldest first; a name of a host that slipped in becomes `a host`."""
    names = sorted(hosts, key=len, reverse=True)
    told = [
        Happening(
            time=_time(event),
            type=event.get("type") or "Normal",
            reason=event.get("reason") or "Unknown",
            message=_message(event, names),
            count=int((event.get("series") or event).get("count") or 1),
        )
        for event in events
        if event.get("reason") not in _NOT_TOLD
    ]
    return sorted(told, key=lambda one: one.time)


def _message(event: Mapping[str, Any], hosts: Iterable[str]) -> str | None:
    if event.get("reason") not in _AS_IT_IS:
        return None
    text = str(event.get("message") or "")[:_LONGEST]
    for host in hosts:
        text = text.replace(host, "a host")
    return text


def _time(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    for found in (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    ):
        if found:
            return str(found)
    return ""
