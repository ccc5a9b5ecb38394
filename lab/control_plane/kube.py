"""The few requests that the lab itself makes to its API server.

Plain HTTPS of the standard library: the official client takes a second to import, a fifth of what
the whole start of the control plane takes.
"""

import http.client
import json
import ssl
from types import TracebackType
from typing import Any, Self

from lab.control_plane.layout import Layout
from lab.control_plane.model import ControlPlaneError
from lab.control_plane.pki import CA
from lab.control_plane.ports import LOOPBACK

FIELD_MANAGER = "gpu-clusters-lab"
_REQUEST_SECONDS = 60.0
_PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "CustomResourceDefinition": "customresourcedefinitions",
    "ConfigMap": "configmaps",
    "DaemonSet": "daemonsets",
    "Deployment": "deployments",
    "EndpointSlice": "endpointslices",
    "Namespace": "namespaces",
    "Node": "nodes",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
}


class UnavailableError(ControlPlaneError):
    """Nothing answers at the address, or it broke off."""


def tls(layout: Layout, client: str) -> ssl.SSLContext:
    """Trust the lab's authority alone, be `client`."""
    context = ssl.create_default_context(cafile=str(layout.certificate(CA)))
    context.load_cert_chain(layout.certificate(client), layout.key(client))
    return context


class Https:
    """A kept connection to one server of the lab on loopback."""

    def __init__(self, port: int, context: ssl.SSLContext, timeout: float = _REQUEST_SECONDS):
        self._connection = http.client.HTTPSConnection(
            LOOPBACK, port, timeout=timeout, context=context
        )
        self.address = f"https://{LOOPBACK}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Status and body; raises `UnavailableError` when there is no answer."""
        payload = None if body is None else json.dumps(body)
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if body else {})
        try:
            self._connection.request(method, path, payload, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise UnavailableError(f"{self.address} does not answer: {error}") from error


class KubeApi(Https):
    """The API server, asked as administrator."""

    def __init__(self, layout: Layout, port: int, timeout: float = _REQUEST_SECONDS):
        super().__init__(port, tls(layout, "admin"), timeout)

    def get(self, path: str) -> dict[str, Any]:
        """The object or list at `path`; raises `ControlPlaneError` when refused or absent."""
        return self._checked("GET", path)

    def apply(self, manifest: dict[str, Any], subresource: str = "") -> dict[str, Any]:
        """Server-side apply, taking over fields of others: what the lab keeps is its own."""
        path = f"{collection(manifest)}/{manifest['metadata']['name']}{subresource}"
        query = f"?fieldManager={FIELD_MANAGER}&force=true"
        return self._checked("PATCH", path + query, manifest, "application/apply-patch+yaml")

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create the object; raises `ControlPlaneError` when it exists."""
        return self._checked("POST", collection(manifest), manifest)

    def delete(self, path: str) -> None:
        """Delete what is at `path`; absent is done."""
        status, body = self.request("DELETE", path)
        if status >= 300 and status != 404:
            raise ControlPlaneError(f"DELETE {path} was refused with {status}: {_message(body)}")

    def _checked(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        status, answer = self.request(method, path, body, content_type)
        if status >= 300:
            where = path.split("?")[0]
            raise ControlPlaneError(
                f"the API server refused {method} {where} with {status}: {_message(answer)}"
            )
        decoded: dict[str, Any] = json.loads(answer)
        return decoded


def collection(manifest: dict[str, Any]) -> str:
    """The path of the collection that the object belongs to: that of its namespace, if it names one."""
    version = manifest["apiVersion"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    return f"{prefix}/{f'namespaces/{namespace}/' if namespace else ''}{_PLURALS[manifest['kind']]}"


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()[:300]
