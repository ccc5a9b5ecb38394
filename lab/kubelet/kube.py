"""What the stand-in asks of the API server beyond reading: statuses, events, tokens, deletions."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.cluster import EVENT, NAMESPACE, POD, Cluster, ClusterError
from lab.control_plane.layout import Layout
from lab.control_plane.pki import CA
from lab.kubelet.node_objects import timestamp

TENANT_LABEL = "gpu-clusters.dev/tenant"
"""Of a tenant's namespace and pods, as docs/tenancy.md promises it."""
MANAGER = "gpu-clusters-kubelet"
_NOT_FOUND = 404
_CONFLICT = 409
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Server:
    """How a program on this machine reaches the API server."""

    url: str
    authority: Path
    """Certificate of the authority that signed the server's."""


class Kube:
    """The API server, as the stand-in's own identity."""

    def __init__(self, layout: Layout, client: str) -> None:
        self.cluster = Cluster(layout, client)
        self.server = Server(self.cluster.url, layout.certificate(CA))

    async def __aenter__(self) -> Self:
        await self.cluster.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.cluster.__aexit__(kind, error, trace)

    async def is_of_tenant(self, pod: Mapping[str, Any]) -> bool:
        """Whether its namespace is a tenant's, or gone: nobody vouches for what such a pod would run."""
        namespace = await self.cluster.get(NAMESPACE, pod["metadata"]["namespace"])
        return namespace is None or TENANT_LABEL in (namespace["metadata"].get("labels") or {})

    async def set_status(self, body: Mapping[str, Any]) -> bool:
        """Apply a pod's status; False when that pod is no more."""
        try:
            await self.cluster.apply(POD, body, manager=MANAGER, subresource="status")
        except ClusterError as error:
            if error.status in (_NOT_FOUND, _CONFLICT):
                return False
            raise
        return True

    async def remove(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        try:
            await self.cluster.delete(
                POD,
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                grace_seconds=0,
            )
        except ClusterError as error:
            if error.status != _CONFLICT:
                raise

    async def event(
        self, pod: Mapping[str, Any], reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Say something about a pod; nobody depends on it, so a failure is only logged."""
        metadata = pod["metadata"]
        now = timestamp(datetime.now(UTC))
        about = {key: metadata[key] for key in ("name", "namespace", "uid")}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name'][:200]}.{secrets.token_hex(8)}",
                "namespace": metadata["namespace"],
            },
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
            "reason": reason,
            "message": message[:1000],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "kubelet-stand-in", "host": pod["spec"].get("nodeName", "")},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            path = EVENT.path(metadata["namespace"])
            await self.cluster.ask("POST", path, body=body)
        except ClusterError as error:
            _log.info("no event %s: %s", reason, error)

    async def token(
        self, pod: Mapping[str, Any], audiences: Sequence[str], seconds: int
    ) -> tuple[str, datetime]:
        """A token of the pod's service account, bound to the pod, and when it expires."""
        metadata = pod["metadata"]
        account = pod["spec"].get("serviceAccountName", "default")
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        reference = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"]}
        spec: dict[str, Any] = {
            "expirationSeconds": seconds,
            "boundObjectRef": {**reference, "uid": metadata["uid"]},
        }
        if audiences:
            spec["audiences"] = list(audiences)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        status = (await self.cluster.ask("POST", path, body=body))["status"]
        return status["token"], datetime.fromisoformat(status["expirationTimestamp"])
