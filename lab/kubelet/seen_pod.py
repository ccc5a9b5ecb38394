"""A pod of a real kubelet as the API server tells of it: what happened to it can be waited for."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from lab.kubelet.pod_status import TERMINAL

Pod = Mapping[str, Any]


class SeenPod:
    """One pod, from the first time it is seen until it is gone."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.runs = asyncio.Event()
        """A container of it has started."""
        self.ends = asyncio.Event()
        """It was told to end, or has ended."""
        self.over = asyncio.Event()
        """None of its containers runs or will run, as its kubelet says; or it is gone."""
        self.gone = asyncio.Event()
        """The API server has it no more."""
        self.update(pod)

    @property
    def name(self) -> tuple[str, str]:
        return self.pod["metadata"]["namespace"], self.pod["metadata"]["name"]

    def update(self, pod: Pod) -> None:
        """The API server has another version of it."""
        self.pod = pod
        if is_over(pod):
            self.over.set()
        if self.over.is_set() or "deletionTimestamp" in pod["metadata"]:
            self.ends.set()
        if has_started(pod):
            self.runs.set()

    def vanish(self) -> None:
        for event in (self.gone, self.over, self.ends):
            event.set()


def has_started(pod: Pod) -> bool:
    return any("running" in state for state in _states(pod))


def is_over(pod: Pod) -> bool:
    """Whether nothing of it runs or will run.

    A pod that is being deleted keeps its phase until it is gone: then its containers say it. One that no
    container of has been told of has not begun.
    """
    if pod.get("status", {}).get("phase") in TERMINAL:
        return True
    states = _states(pod)
    ended = bool(states) and all("terminated" in state for state in states)
    return ended and "deletionTimestamp" in pod["metadata"]


def has_succeeded(pod: Pod) -> bool:
    """Whether all of its containers have done what they were for."""
    return bool(pod.get("status", {}).get("phase") == "Succeeded")


async def first(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _states(pod: Pod) -> list[Mapping[str, Any]]:
    told = pod.get("status", {}).get("containerStatuses") or ()
    return [container.get("state") or {} for container in told]
