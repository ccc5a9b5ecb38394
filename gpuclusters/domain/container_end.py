"""Why a container is over although neither its program nor its tenant ended it: its machine did.

A kubelet says so in words of its own, which name the node or nothing that a tenant could act on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RESTARTED = "MachineRestarted"
SHUT_DOWN = "MachineShutDown"
NOT_ACCEPTED = "NotAccepted"

_MESSAGES = {
    RESTARTED: "its machine was restarted, and what ran there was lost; ask for a new container",
    SHUT_DOWN: "its machine was shut down; ask for a new container",
    NOT_ACCEPTED: "its machine did not take it in; ask for a new container",
}
_REJECTED = "UnexpectedAdmissionError"
_BEFORE_THE_PLUGIN = (
    "cannot allocate unregistered device",
    "cannot allocate unhealthy devices",
)
"""Of the kubelet that finds a pod of before the restart when no device plugin has come back yet.

Before a first start it says neither: nothing is scheduled to a node that announces no GPUs.
"""
_SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown"


def end_by_machine(
    status: Mapping[str, Any], terminated: Mapping[str, Any]
) -> tuple[str, str] | None:
    """Reason and message for the tenant; None if the container ended by itself.

    Args:
        status: of the pod, which has ended.
        terminated: of its container; empty if the kubelet says nothing of it.
    """
    reason, said = status.get("reason"), str(status.get("message") or "")
    if reason == _REJECTED:
        lost = any(words in said for words in _BEFORE_THE_PLUGIN)
        found = RESTARTED if lost else NOT_ACCEPTED
    elif reason == "NodeShutdown" or (
        reason == "Terminated" and said.startswith(_SHUTDOWN_MESSAGE)
    ):
        found = SHUT_DOWN
    elif terminated.get("reason") == "ContainerStatusUnknown":
        # The kubelet knows that it started it, and its runtime has no trace of it.
        found = RESTARTED
    else:
        return None
    return found, _MESSAGES[found]
