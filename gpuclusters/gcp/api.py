"""The Compute API of Google Cloud: as whom it is called, its calls and operations, machines and quotas."""

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from gpuclusters.core.errors import (
    CommandFailedError,
    CommandTimeoutError,
    DeniedError,
    InvalidAnswerError,
    NoCredentialsError,
    UnreachableError,
)
from gpuclusters.core.finding import refused
from gpuclusters.gcp.model import OWNER_LABEL, ApiError, GoogleAccess, Instance, Quota

TOKEN_VARIABLE = "GOOGLE_OAUTH_ACCESS_TOKEN"  # noqa: S105 (the name of a variable)
SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class GoogleCredentials:
    """Tokens for requests; made anew when one is about to end."""

    def __init__(self, impersonate: str = "") -> None:
        self._impersonate = impersonate
        self._found: Any = None

    def token(self) -> str:
        given = os.environ.get(TOKEN_VARIABLE)
        if given and not self._impersonate:
            return given
        # Loaded late: only a machine on Google Cloud needs it.
        import google.auth
        from google.auth import exceptions, impersonated_credentials
        from google.auth.transport.urllib3 import Request

        request = Request(urllib3.PoolManager())  # type: ignore[no-untyped-call]
        try:
            if self._found is None:
                self._found, _ = google.auth.default(scopes=[SCOPE], request=request)
                if self._impersonate:
                    self._found = impersonated_credentials.Credentials(  # type: ignore[no-untyped-call]
                        self._found, self._impersonate, [SCOPE]
                    )
            if not self._found.valid:
                self._found.refresh(request)
        except exceptions.GoogleAuthError as error:
            problem = (str(error) or type(error).__name__).splitlines()[0]
            remedy = (
                "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS or "
                f"{TOKEN_VARIABLE}"
            )
            raise NoCredentialsError("Google Cloud", "find credentials", problem, remedy) from error
        return str(self._found.token)


ENDPOINT = "https://compute.googleapis.com/compute/v1/"
# `operations.wait` keeps a call open for up to two minutes.
_TIMEOUT = urllib3.Timeout(connect=10.0, read=150.0)
# Only calls that change nothing are repeated, for they may have been carried out.
_RETRIES = urllib3.Retry(
    total=5,
    connect=3,
    read=2,
    redirect=0,
    status=4,
    status_forcelist=(500, 502, 503, 504),
    allowed_methods=("GET",),
    backoff_factor=0.5,
    raise_on_status=False,
)
# A call that is answered so was not carried out, so that any may be repeated.
_LIMITED = ("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED")
_LIMITED_STATUS = 429
_LIMITED_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_NOT_FOUND = 404
_DENIED = (401, 403)
_ERRORS_FROM = 400
_LONGEST_BODY = 300
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class GoogleRest:
    """Calls of one endpoint as one account."""

    def __init__(
        self,
        token: Callable[[], str],
        endpoint: str = ENDPOINT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """An endpoint that is neither https nor on this computer is refused: a token would be seen."""
        parts = urlsplit(endpoint)
        if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            raise InvalidAnswerError(
                endpoint, "use it", "it is not https", "write gcp:computeCustomEndpoint with https"
            )
        self._token = token
        self._sleep = sleep
        self._endpoint = endpoint if endpoint.endswith("/") else f"{endpoint}/"
        self._pool = urllib3.PoolManager(timeout=_TIMEOUT, retries=_RETRIES)

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return self._call("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def pages(self, path: str, **query: str) -> list[dict[str, Any]]:
        found = [self.get(path, **query)]
        while mark := found[-1].get("nextPageToken"):
            found.append(self.get(path, **query, pageToken=str(mark)))
        return found

    def operate(
        self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float
    ) -> None:
        """Begin an operation and wait until it is done; `ApiError` also where it ends with errors."""
        end = time.monotonic() + seconds
        operation = self._call(method, path, body)
        wait = f"{urlsplit(str(operation.get('selfLink', ''))).path}/wait"
        place = wait.partition("/projects/")[2]
        while operation.get("status") != "DONE":
            if time.monotonic() >= end or not place:
                raise CommandTimeoutError(
                    str(operation.get("targetLink") or path).partition("/projects/")[2] or path,
                    str(operation.get("operationType") or method.lower()),
                    f"it is {operation.get('status')} after {seconds:g} s",
                    "it goes on at Google: see `gcloud compute operations list`, then run again",
                )
            operation = self._call("POST", f"projects/{place}", None)
        faults = (operation.get("error") or {}).get("errors") or ()
        if faults:
            more = (f"; {one.get('code')}: {one.get('message')}" for one in faults[1:])
            message = f"{faults[0].get('message', '')}{''.join(more)}"
            raise ApiError(_ERRORS_FROM, str(faults[0].get("code", "")), message)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        for pause in _LIMITED_PAUSES:
            try:
                return self._once(method, path, body)
            except ApiError as error:
                if error.status != _LIMITED_STATUS and error.code not in _LIMITED:
                    raise
            # Many machines begin at the same time; they should not come back at the same time.
            self._sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 (spreading, no secret)
        return self._once(method, path, body)

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        where = urlsplit(self._endpoint).netloc
        tried = f"{method} {path.partition('?')[0]}"
        headers = {"Authorization": f"Bearer {self._token()}", "Accept": "application/json"}
        try:
            answer = self._pool.request(
                method, f"{self._endpoint}{path}", headers=headers, json=body
            )
        except urllib3.exceptions.HTTPError as error:
            problem = f"no answer ({type(error).__name__})"
            remedy = "check the network and proxies, then run again: what was begun is found and continued"
            raise UnreachableError(where, tried, problem, remedy) from error
        status, data = answer.status, answer.data
        try:
            parsed = json.loads(data or b"{}")
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            problem = (
                f"status {status} and no JSON: {data[:_LONGEST_BODY].decode(errors='replace')!r}"
            )
            raise InvalidAnswerError(where, tried, problem, "check proxies in between")
        if status < _ERRORS_FROM:
            return parsed
        raise self._refused(where, tried, status, parsed.get("error") or {})

    def _refused(
        self, where: str, tried: str, status: int, error: Mapping[str, Any]
    ) -> ApiError | DeniedError:
        message = str(error.get("message") or "no reason given")
        first: Mapping[str, Any] = next(iter(error.get("errors") or [{}]), {})
        code = str(first.get("reason") or error.get("status") or status)
        if status in _DENIED and "quota" not in code.lower() and code not in _LIMITED:
            remedy = (
                "give the account the role Compute Admin and Service Account User, and enable the Compute "
                "Engine API in the project"
            )
            return DeniedError(where, tried, message, remedy)
        return ApiError(status, code, message)


# Labels, tags and protection are set in seconds.
SMALL_STEP_SECONDS = 120.0


class GoogleCompute:
    """Machines and quotas of projects. Waits are bounded.

    AdapterError: the API is not reached or says no; ApiError of `insert` and `start`: the zone says no.
    """

    def __init__(self, rest: GoogleRest) -> None:
        self._rest = rest

    def find(self, project: str, name: str) -> Sequence[Instance]:
        """Machines of that name in all zones."""
        return self._list(project, f'name = "{name}"')

    def owned(self, project: str, owner: str) -> Sequence[Instance]:
        """Machines that carry the label of an owner, in all zones."""
        return self._list(project, f'labels.{OWNER_LABEL} = "{owner}"')

    def get(self, project: str, zone: str, name: str) -> Instance | None:
        """One machine; None if it is not there."""
        path = _instance(project, zone, name)
        found: list[Instance] = []
        with _told(path, "read the machine", absent=True):
            found.append(Instance.model_validate(self._rest.get(path)))
        return found[0] if found else None

    def insert(self, project: str, zone: str, body: Mapping[str, Any], seconds: float) -> None:
        """Make a machine and wait until it is made."""
        self._rest.operate("POST", f"projects/{project}/zones/{zone}/instances", body, seconds)

    def start(self, project: str, zone: str, name: str, seconds: float) -> None:
        self._rest.operate("POST", f"{_instance(project, zone, name)}/start", None, seconds)

    def delete(self, project: str, zone: str, name: str, seconds: float) -> None:
        """Delete a machine with its boot disk; absent is fine."""
        path = _instance(project, zone, name)
        with _told(path, "delete the machine", absent=True):
            self._rest.operate("DELETE", path, None, seconds)

    def set_labels(self, project: str, instance: Instance, labels: Mapping[str, str]) -> None:
        body = {"labels": dict(labels), "labelFingerprint": instance.label_fingerprint}
        self._change(project, instance, "setLabels", body)

    def set_tags(self, project: str, instance: Instance, tags: Sequence[str]) -> None:
        """Replace its network tags."""
        body = {"items": list(tags), "fingerprint": instance.tag_fingerprint}
        self._change(project, instance, "setTags", body)

    def set_deletion_protection(self, project: str, instance: Instance, on: bool) -> None:  # noqa: FBT001
        """Let Google refuse to delete it, or no longer."""
        word = "true" if on else "false"
        self._change(project, instance, f"setDeletionProtection?deletionProtection={word}", None)

    def quotas(self, project: str, region: str) -> Mapping[str, Quota]:
        """Quotas of a region and those of the whole project, by metric."""
        rows: list[dict[str, Any]] = []
        for path in (f"projects/{project}", f"projects/{project}/regions/{region}"):
            with _told(path, "read its quotas"):
                rows += self._rest.get(path).get("quotas") or ()
        return {row["metric"]: Quota(row.get("limit", 0), row.get("usage", 0)) for row in rows}

    def _list(self, project: str, expression: str) -> Sequence[Instance]:
        path = f"projects/{project}/aggregated/instances"
        with _told(path, "list the machines"):
            pages = self._rest.pages(path, filter=expression, returnPartialSuccess="false")
        zones = [zone for page in pages for zone in (page.get("items") or {}).values()]
        found = [one for zone in zones for one in zone.get("instances") or ()]
        return [Instance.model_validate(one) for one in found]

    def _change(
        self, project: str, instance: Instance, verb: str, body: Mapping[str, Any] | None
    ) -> None:
        path = f"{_instance(project, instance.zone, instance.name)}/{verb}"
        with _told(path.partition("?")[0], verb.partition("?")[0]):
            self._rest.operate("POST", path, body, SMALL_STEP_SECONDS)


def compute(google: GoogleAccess) -> GoogleCompute:
    """The Compute API, unless the configuration holds credentials of its own."""
    if google.refused:
        raise refused("Google Cloud", "gcp.other-credentials", keys=" and ".join(google.refused))
    credentials = GoogleCredentials(google.impersonate)
    return GoogleCompute(GoogleRest(credentials.token, google.endpoint or ENDPOINT))


def _instance(project: str, zone: str, name: str) -> str:
    return f"projects/{project}/zones/{zone}/instances/{name}"


@contextmanager
def _told(path: str, tried: str, *, absent: bool = False) -> Iterator[None]:
    """The API's no in our words; with `absent` none where it says that there is no such thing."""
    try:
        yield
    except ApiError as error:
        if not (absent and error.status == _NOT_FOUND):
            problem = f"{error.code}: {error.message}"
            remedy = "correct what it names, then run again"
            raise CommandFailedError(path, tried, problem, remedy) from error
