"""The Kubernetes API over HTTPS: requests, discovery, and errors that say what the server said."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import urllib3

from engine.answers import ProviderError
from engine.stand_ins.kubernetes.kubeconfig import Cluster
from engine.stand_ins.kubernetes.objects import GroupVersionKind, Object

APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML
JSON_PATCH: Final = "application/json-patch+json"
_CONNECT_SECONDS: Final = 20.0
_READ_SECONDS: Final = 60.0
_CONNECTIONS: Final = 64


class Unreachable(ProviderError):  # noqa: N818 - a state of the cluster
    """No answer from the API server."""


class ApiError(ProviderError):
    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.reason = str(body.get("reason") or "")
        self.message = str(body.get("message") or f"HTTP status {status}")
        details = body.get("details")
        self.causes: Sequence[Mapping[str, Any]] = (
            details.get("causes") or () if isinstance(details, Mapping) else ()
        )
        super().__init__(self.message)

    @property
    def absent(self) -> bool:
        """Whether what was asked for does not exist."""
        return self.status == 404


@dataclass(frozen=True)
class ApiResource:
    kind: GroupVersionKind
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        """URL path of the collection or, with a name, of one object."""
        version = self.kind.api_version
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        scope = f"/namespaces/{quote(namespace)}" if self.namespaced and namespace else ""
        return f"{root}{scope}/{self.plural}" + (f"/{quote(name)}" if name else "")


class Api:
    """One API server; safe to use from many threads."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._kinds: dict[str, dict[str, ApiResource]] = {}
        self._lock = threading.Lock()
        options: dict[str, Any] = {}
        if cluster.tls is not None:
            options["ssl_context"] = cluster.tls
        if cluster.tls_server_name:
            options["server_hostname"] = cluster.tls_server_name
            options["assert_hostname"] = cluster.tls_server_name
        self._pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS,
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
            # Only what certainly did nothing is tried again: no connection, or "too many requests".
            retries=urllib3.Retry(
                total=None,
                connect=2,
                read=0,
                redirect=0,
                other=0,
                status=3,
                status_forcelist=(429,),
                allowed_methods=None,
                backoff_factor=0.2,
                raise_on_status=False,
            ),
            **options,
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> tuple[Object, list[str]]:
        """The answer and the server's warnings.

        Raises:
            Unreachable: no answer came.
            ApiError: the server refused.
        """
        url = self.cluster.server + path + (f"?{urlencode(query)}" if query else "")
        headers = {**self.cluster.headers, "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            response = self._pool.request(
                method, url, headers=headers, body=None if body is None else json.dumps(body)
            )
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(
                f"API server {self.cluster.server} does not answer ({_innermost(error)}); "
                "is the cluster running and the kubeconfig the right one?"
            ) from error
        answer = _body(response.data)
        if response.status >= 400:
            raise ApiError(response.status, answer)
        return answer, _warnings(response.headers.getlist("Warning"))

    def get(self, resource: ApiResource, namespace: str, name: str) -> Object | None:
        """One object; None if there is none."""
        try:
            return self.request("GET", resource.path(namespace, name))[0]
        except ApiError as error:
            if error.absent:
                return None
            raise

    def list(
        self, resource: ApiResource, namespace: str, query: Mapping[str, str] | None = None
    ) -> Sequence[Object]:
        answer, _ = self.request("GET", resource.path(namespace), query=query)
        return answer.get("items") or ()

    def find(self, kind: GroupVersionKind) -> ApiResource | None:
        """Where a kind lives; None if the server does not know it (any more, or yet)."""
        known = self._kinds.get(kind.api_version, {}).get(kind.kind)
        if known is not None:
            return known
        resources = self._discover(kind.api_version)
        with self._lock:
            self._kinds[kind.api_version] = resources
        return resources.get(kind.kind)

    def forget(self, group: str) -> None:
        """Ask again for the kinds of a group, because a definition in it changed."""
        with self._lock:
            for api_version in [v for v in self._kinds if v.rpartition("/")[0] == group]:
                del self._kinds[api_version]

    def _discover(self, api_version: str) -> dict[str, ApiResource]:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            answer, _ = self.request("GET", root)
        except ApiError as error:
            if error.absent:
                return {}
            raise
        return {
            item["kind"]: ApiResource(
                GroupVersionKind(api_version, item["kind"]), item["name"], item["namespaced"]
            )
            for item in answer.get("resources") or ()
            if "/" not in item["name"]  # subresources
        }


def _body(data: bytes) -> Object:
    try:
        body = json.loads(data) if data else {}
    except ValueError:
        return {"message": data.decode(errors="replace").strip()[:500]}
    return body if isinstance(body, dict) else {"message": str(body)[:500]}


def _warnings(headers: Sequence[str]) -> list[str]:
    """Texts of `Warning: 299 - "text"` headers (RFC 7234 §5.5)."""
    return [header.split('"', 1)[1].rsplit('"', 1)[0] for header in headers if '"' in header]


def _innermost(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    while isinstance(reason, BaseException):
        error, reason = reason, getattr(reason, "reason", None)
    text = str(error)
    return text.rsplit(": ", 1)[-1] if "Connection" in text else text
