"""Objects of a Kubernetes cluster, through the official client; no secret is left on the disk."""

from __future__ import annotations

import hashlib
import json
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import urllib3
import yaml

from gpuclusters.core.errors import (
    AdapterError,
    BusyError,
    CommandFailedError,
    CommandTimeoutError,
    DeniedError,
    NoCredentialsError,
    UnreachableError,
)
from gpuclusters.core.ports import ObjectKind, condition
from gpuclusters.gcp.kubeconfig import PROGRAM

if TYPE_CHECKING:
    from kubernetes import client

STRICT = (("fieldManager", "gpu-clusters"), ("fieldValidation", "Strict"))
"""How objects are written: a field that the server does not know is a failure."""
# An API server answers within milliseconds; one under load may take seconds, also to shake hands, which
# is a part of connecting.
REQUEST_TIMEOUT_SECONDS = (15.0, 60.0)
# Nothing was done yet when connecting fails, so it may be repeated; not longer than a restart of
# a load balancer. Neither was it when the server says when to come again (429 while the storage of a
# new kind is made ready, 503 while it starts), whatever was asked.
RETRIES = urllib3.Retry(connect=2, read=0, redirect=0, status=5, other=0, allowed_methods=None)
DELETE_TIMEOUT_SECONDS = 120.0
DELETE_POLL_SECONDS = 0.3
LOG_BYTES = 4 << 20
AWAY_SECONDS = 120.0
"""An API server that answered before may be away so long: RKE2 restarts take about a minute."""
AWAY_POLL_SECONDS = 2.0

_OWNERS = ("apps", "batch")
"""Groups of kinds that own pods, and leave them behind by default."""
_FOREGROUND = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
_JSON = "application/json"
_NOT_FOUND = 404
_CONFLICT = 409
_INVALID = 422


class KubernetesObjects:
    """`ClusterObjects` of the cluster that a kubeconfig names."""

    def __init__(self, kubeconfig: str) -> None:
        self._client = _shared_client(kubeconfig)

    @property
    def target(self) -> str:
        return f"API server {self._client.configuration.host}"

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        """The object, or None if it or its kind does not exist."""
        return self._or_none("GET", kind.path(namespace, name), f"read {kind.kind} {name}")

    def list(
        self, kind: ObjectKind, namespace: str = "", *, labels: str = ""
    ) -> Sequence[dict[str, Any]]:
        """All objects of the kind that a selector of labels selects; none if the kind does not exist."""
        query = [("labelSelector", labels)] if labels else []
        answer = self._or_none("GET", kind.path(namespace), f"list {kind.plural}", query=query)
        return list(answer.get("items") or ()) if answer else []

    def apply(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply of a cluster-scoped object; takes no field from others."""
        return self._apply(kind, body)

    def take(self, kind: ObjectKind, body: Mapping[str, Any], *, manager: str) -> dict[str, Any]:
        """Server-side apply of a cluster-scoped object that takes fields from other managers.

        One manager per purpose; what it said before and does not now is given up.
        """
        return self._apply(kind, body, ("fieldManager", manager), ("force", "true"))

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

    def delete(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        """Delete an object with the pods that it owns, and wait for their end; absent is fine."""
        path, tried = kind.path(namespace, name), f"delete {kind.kind} {name}"
        deadline = time.monotonic() + DELETE_TIMEOUT_SECONDS
        left = self._or_none("DELETE", path, tried, *([_FOREGROUND] * (kind.group in _OWNERS)))
        while left is not None and (left := self._or_none("GET", path, tried)) is not None:
            if time.monotonic() > deadline:
                kept = ", ".join(left.get("metadata", {}).get("finalizers") or ()) or "none"
                late = f"it is still there after {DELETE_TIMEOUT_SECONDS:g} s (finalizers: {kept})"
                remedy = "look whether the controller that owns the finalizer runs, and run again"
                raise CommandTimeoutError(self.target, tried, late + _says(left), remedy)
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

    def try_pod(self, namespace: str, body: Mapping[str, Any]) -> str | None:
        """Dry-run creation: None if the server would accept the pod, else why it refused."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        status, answer = self._call("POST", path, "try a pod", body, query=[("dryRun", "All")])
        if status in (200, 201):
            return None
        reason = str(answer.get("message") or f"status {status}")
        if status == 401 or (status == 403 and " cannot create resource " in reason):
            raise self._refused("try a pod", status, answer)
        return reason

    def may(self, user: str, groups: Sequence[str], attributes: Mapping[str, str]) -> bool:
        """Whether a user (as in audit logs) might do something; nothing is done."""
        spec = {"user": user, "groups": list(groups), "resourceAttributes": dict(attributes)}
        return self._review("SubjectAccessReview", "ask what an account may do", spec)

    def may_we(self, attributes: Mapping[str, str]) -> bool:
        """Whether the kubeconfig's own account may do something, which is not done."""
        spec = {"resourceAttributes": dict(attributes)}
        return self._review("SelfSubjectAccessReview", "ask what we may do", spec)

    def _review(self, kind: str, tried: str, spec: Mapping[str, Any]) -> bool:
        group = "authorization.k8s.io/v1"
        body = {"apiVersion": group, "kind": kind, "spec": spec}
        answer = self._answer("POST", f"/apis/{group}/{kind.lower()}s", tried, body)
        return bool(answer["status"]["allowed"])

    def try_status(self, kind: ObjectKind, name: str, status: Mapping[str, Any]) -> str | None:
        """Dry-run patch of a status: None if it would be taken, else why it is refused."""
        path, tried = kind.path("", name, "status"), f"try a status of {kind.kind} {name}"
        how = {"query": [("dryRun", "All")], "content_type": "application/merge-patch+json"}
        code, answer = self._call("PATCH", path, tried, {"status": dict(status)}, **how)
        if code < 300:
            return None
        if code == _INVALID:
            return str(answer.get("message") or f"status {code}")
        raise self._refused(tried, code, answer)

    def version(self) -> str:
        """Version of the API server, for example `v1.36.3`."""
        return str(self._answer("GET", "/version", "ask for the version").get("gitVersion"))

    def _apply(
        self,
        kind: ObjectKind,
        body: Mapping[str, Any],
        *query: tuple[str, str],
    ) -> dict[str, Any]:
        name = body["metadata"]["name"]
        path, tried = kind.path("", name), f"apply {kind.kind} {name}"
        how = {
            "query": [*(query or STRICT[:1]), *STRICT[1:]],
            "content_type": "application/apply-patch+yaml",
        }
        answer = self._or_none("PATCH", path, tried, body, **how)
        if answer is None:
            problem, remedy = (
                "the server does not know this kind",
                "install its CustomResourceDefinition first",
            )
            raise CommandFailedError(self.target, tried, problem, remedy)
        return answer

    def _or_none(
        self, method: str, path: str, tried: str, *body: Any, **how: Any
    ) -> dict[str, Any] | None:
        """Of a request for what may not be there."""
        status, answer = self._call(method, path, tried, *body, **how)
        if status >= 300 and status != _NOT_FOUND:
            raise self._refused(tried, status, answer)
        return None if status == _NOT_FOUND else answer

    def _answer(self, method: str, path: str, tried: str, *body: Any, **how: Any) -> dict[str, Any]:
        """Of a request that has to succeed."""
        status, answer = self._call(method, path, tried, *body, **how)
        if status >= 300:
            raise self._refused(tried, status, answer)
        return answer

    def _refused(self, tried: str, status: int, answer: Mapping[str, Any]) -> AdapterError:
        said = str(answer.get("message") or "no reason given")
        if status in (401, 403):
            remedy = "give the kubeconfig's user the right, or use another kubeconfig"
            return DeniedError(self.target, tried, said, remedy)
        if status == 409:
            remedy = "let that manager give the field up, or remove it there"
            return BusyError(self.target, tried, said, remedy)
        return CommandFailedError(self.target, tried, f"status {status}: {said}", "correct that")

    def _call(
        self, method: str, path: str, tried: str, *body: Any, **how: Any
    ) -> tuple[int, dict[str, Any]]:
        status, data = self._request(method, path, tried, *body, **how)
        return status, parsed(data)

    def _request(
        self,
        method: str,
        path: str,
        tried: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Sequence[tuple[str, str]] = (),
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> tuple[int, bytes | str | None]:
        request = self._client.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params={"Accept": accept, "Content-Type": content_type},
            body=None if body is None else dict(body),
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*request, _request_timeout=REQUEST_TIMEOUT_SECONDS)
            return int(answer.status), answer.response.data
        except urllib3.exceptions.HTTPError as error:
            remedy = "check that the API server runs and that the kubeconfig names it rightly"
            raise UnreachableError(self.target, tried, _reason(error), remedy) from error


class PatientObjects(KubernetesObjects):
    """The same, but reading is tried again while an API server is away that has answered before."""

    _reached = False

    def _call(
        self, method: str, path: str, tried: str, *body: Any, **more: Any
    ) -> tuple[int, dict[str, Any]]:
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


def _says(left: Mapping[str, Any]) -> str:
    """What the object's own status says about why it is not ready, or not gone."""
    said = condition(left, "Ready").get("message")
    return f"; its status says: {said}" if said else ""


def parsed(data: bytes | str | None) -> dict[str, Any]:
    """An answer; one that is no object is all of it a message."""
    text = data.decode(errors="replace") if isinstance(data, bytes) else data or ""
    try:
        answer = json.loads(text) if text else {}
    except ValueError:
        return {"message": text[:500]}
    return answer if isinstance(answer, dict) else {"message": text[:500]}


_CLIENTS: dict[str, client.ApiClient] = {}
_CLIENTS_GUARD = threading.Lock()


def _shared_client(kubeconfig: str) -> client.ApiClient:
    """One client, with its pool of connections, per kubeconfig; kept under its hash only."""
    key = hashlib.sha256(kubeconfig.encode()).hexdigest()
    with _CLIENTS_GUARD:
        if key not in _CLIENTS:
            _CLIENTS[key] = _api_client(kubeconfig)
        return _CLIENTS[key]


def _api_client(kubeconfig: str) -> client.ApiClient:
    """A client for the current context.

    OpenSSL reads certificates and keys from files. Those of the library would stay until an orderly exit,
    which a provider process does not have; here they live for a moment, mode 0600.
    """
    # Late: whoever asks no cluster does not wait for it.
    from kubernetes import client, config

    try:
        document = yaml.safe_load(kubeconfig)
    except yaml.YAMLError:
        # Not chained: the message of the YAML parser quotes the line, which may be a key.
        raise _unusable("it is not YAML") from None
    configuration = client.Configuration()
    configuration.retries = RETRIES
    try:
        _at_hand(document)
        with tempfile.TemporaryDirectory(prefix="gpu-clusters-") as folder:
            config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
                document,
                client_configuration=configuration,
                persist_config=False,
                temp_file_path=folder,
            )
            context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
            if configuration.cert_file:
                context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except config.ConfigException as error:
        raise _unusable(str(error)) from error
    except (AttributeError, TypeError, ValueError, OSError) as error:
        raise _unusable("the client library cannot use it") from error
    if not configuration.verify_ssl:
        problem = "it asks for insecure-skip-tls-verify, so anybody could answer as the API server"
        remedy = "give the server's certificate authority instead"
        raise NoCredentialsError("kubeconfig", "read it", problem, remedy)
    configuration.ssl_ca_cert = configuration.cert_file = configuration.key_file = None
    made = client.ApiClient(configuration)
    made.rest_client.pool_manager.connection_pool_kw["ssl_context"] = context
    return made


def _at_hand(document: dict[str, Any]) -> None:
    """Let what gives a token be found where this program is installed, on PATH or not."""
    for entry in document.get("users") or ():
        program = entry.get("user", {}).get("exec") or {}
        if program.get("command") == PROGRAM:
            own = ["-m", "gpuclusters.cli", *(program.get("args") or ())]
            program |= {"command": sys.executable, "args": own}


def _unusable(problem: str) -> NoCredentialsError:
    return NoCredentialsError("kubeconfig", "read it", problem, "check with `kubectl --kubeconfig`")


def _reason(error: urllib3.exceptions.HTTPError) -> str:
    """The innermost cause; urllib3 wraps it in objects whose text repeats itself."""
    cause: BaseException = error.reason if hasattr(error, "reason") and error.reason else error
    text = str(cause).rsplit(">: ", 1)[-1].rsplit("): ", 1)[-1]
    return text or type(cause).__name__
