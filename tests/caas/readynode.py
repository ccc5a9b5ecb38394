"""A node of the cluster that runs nothing and is Ready, until its kubelet falls silent."""

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gpuclusters.tenancy.proof import AGENT_IS_UP
from lab.control_plane.kube import UnavailableError
from tests.fixtures.tenancies import Request
from tests.fixtures.waiting import eventually

_BEAT_SECONDS = 5.0


@contextmanager
def ready_node(request: Request) -> Iterator[tuple[str, threading.Event]]:
    """A Ready node with eight GPUs, for as long as the context lasts: its name, and what makes it silent."""
    name, silent, over = f"ready-{secrets.token_hex(4)}", threading.Event(), threading.Event()
    path = f"/api/v1/nodes/{name}"

    def beat() -> None:
        """Of a node that is silent for 40 s nobody expects anything."""
        while not over.wait(_BEAT_SECONDS):
            if not silent.is_set():
                # Missing one is no fault.
                with suppress(UnavailableError, AssertionError):
                    request.merge(f"{path}/status", {"status": _status()})
        request.close()

    def usable() -> bool:
        found = request.get(path) or {"spec": {"taints": ["?"]}}
        return not found["spec"].get("taints")

    beating = threading.Thread(target=beat)
    try:
        labels = {"kubernetes.io/hostname": name}
        code, answer = request(
            "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}}
        )
        assert code == 201, answer
        request.merge(f"{path}/status", {"status": _status()})
        beating.start()
        eventually(usable, what=f"{name} ready")
        yield name, silent
    finally:
        over.set()
        if beating.ident is not None:
            beating.join()
        request("DELETE", path)


def _status() -> dict[str, Any]:
    # Room for the one pod that is sent here, not for those of other tests.
    amounts = {
        "cpu": "1",
        "memory": "1Gi",
        "ephemeral-storage": "1Ti",
        "pods": "1",
        "nvidia.com/pgpu": "8",
    }
    beat = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # A node without an agent of Cilium would make every tenancy of the cluster not ready.
    since = {"message": "", "lastHeartbeatTime": beat, "lastTransitionTime": beat}
    conditions = [
        {"type": "NetworkUnavailable", "status": "False", "reason": AGENT_IS_UP, **since},
        {"type": "Ready", "status": "True", "reason": "Test", **since},
    ]
    return {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
