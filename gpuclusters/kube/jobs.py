"""A cluster in which Jobs are run: made, read, and removed with their pods."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gpuclusters.core.errors import (
    BusyError,
    CommandFailedError,
    CommandTimeoutError,
    UnreachableError,
)
from gpuclusters.core.ports import ObjectKind
from gpuclusters.kube.objects import DELETE_POLL_SECONDS, STRICT, KubernetesObjects, parsed
from gpuclusters.tenancy.objects import POD

LOG_BYTES = 4 << 20
REMOVE_TIMEOUT_SECONDS = 120.0
AWAY_SECONDS = 120.0
"""An API server that answered before may be away so long: RKE2 restarts take about a minute."""
AWAY_POLL_SECONDS = 2.0
_CONFLICT = 409


class ClusterJobs(KubernetesObjects):
    """`JobCluster` of the cluster that a kubeconfig names."""

    _reached = False

    def create(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make an object; BusyError: there is one of this name."""
        metadata = body["metadata"]
        tried = f"create {kind.kind} {metadata['name']}"
        path = kind.path(str(metadata.get("namespace", "")))
        status, answer = self._call("POST", path, tried, body, query=STRICT)
        if status == _CONFLICT:
            remedy = "let the other run that made it end, or delete it"
            raise BusyError(self.target, tried, "there is one already", remedy)
        if status >= 300:
            raise self._refused(tried, status, answer)
        return answer

    def remove(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        """Delete an object with what it owns, and wait for their end; absent is fine."""
        path, tried = kind.path(namespace, name), f"delete {kind.kind} {name}"
        # Jobs leave their pods behind by default.
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
        if self._or_none("DELETE", path, tried, options) is None:
            return
        deadline = time.monotonic() + REMOVE_TIMEOUT_SECONDS
        while (left := self._left(kind, name, namespace)) is not None:
            if time.monotonic() > deadline:
                late = f"{left} is still there after {REMOVE_TIMEOUT_SECONDS:g} s"
                remedy = "look at its finalizers and at the kubelet of its node, and run again"
                raise CommandTimeoutError(self.target, tried, late, remedy)
            time.sleep(DELETE_POLL_SECONDS)

    def log(self, namespace: str, pod: str, container: str) -> str:
        """What a container printed, its last 4 MiB at most."""
        path, tried = f"/api/v1/namespaces/{namespace}/pods/{pod}/log", f"read the log of {pod}"
        query = [("container", container), ("limitBytes", str(LOG_BYTES))]
        status, text = self._request("GET", path, tried, query=query, accept="*/*")
        said = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
        if status >= 300:
            raise self._refused(tried, status, parsed(said))
        return said

    def ask(
        self, namespace: str, service: str, port: int, path: str, query: Mapping[str, str]
    ) -> dict[str, Any]:
        """A JSON answer of a service, through the API server's proxy."""
        whole = f"/api/v1/namespaces/{namespace}/services/{quote(service)}:{port}/proxy/{path}"
        tried = f"ask the service {namespace}/{service}"
        status, answer = self._call("GET", whole, tried, query=list(query.items()))
        if status >= 300:
            said = answer.get("message") or answer.get("error") or "no reason"
            problem = f"status {status}: {said}"
            raise CommandFailedError(self.target, tried, problem, "check that its pod runs")
        return answer

    def _call(
        self, method: str, path: str, tried: str, *body: Any, **more: Any
    ) -> tuple[int, dict[str, Any]]:
        """As of every cluster, but reading is tried again while the API server is away."""
        deadline = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                answer = super()._call(method, path, tried, *body, **more)
            except UnreachableError:
                # One that never answered is most likely named wrongly; and what changes something may have.
                if not self._reached or method != "GET" or time.monotonic() > deadline:
                    raise
                time.sleep(AWAY_POLL_SECONDS)
            else:
                self._reached = True
                return answer

    def _left(self, kind: ObjectKind, name: str, namespace: str) -> str | None:
        if self.get(kind, name, namespace) is not None:
            return f"{kind.kind} {name}"
        for pod in self.list(POD, namespace) if kind.kind == "Job" else ():
            owners = pod["metadata"].get("ownerReferences") or ()
            if ("Job", name) in {(owner.get("kind"), owner.get("name")) for owner in owners}:
                return f"pod {pod['metadata']['name']}"
        return None
