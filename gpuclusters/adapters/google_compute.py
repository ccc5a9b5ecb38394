"""Machines on Google Cloud over the Compute API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from gpuclusters.adapters.google_rest import ApiError, GoogleRest, is_absent
from gpuclusters.core.errors import CommandFailedError
from gpuclusters.domain.gcp_compute import Instance, Quota, refusal
from gpuclusters.domain.gcp_machine import OWNER_LABEL

# Labels, tags and protection are set in seconds.
SMALL_STEP_SECONDS = 120.0


class GoogleCompute:
    """The port `Compute` over HTTP."""

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
        try:
            return _parsed(self._rest.get(path))
        except ApiError as error:
            if is_absent(error):
                return None
            _fail(path, "read the machine", error)

    def insert(self, project: str, zone: str, body: Mapping[str, Any], seconds: float) -> None:
        """Make a machine and wait until it is made."""
        self._zonal(f"projects/{project}/zones/{zone}/instances", body, seconds)

    def start(self, project: str, zone: str, name: str, seconds: float) -> None:
        """Start a machine that is stopped."""
        self._zonal(f"{_instance(project, zone, name)}/start", None, seconds)

    def delete(self, project: str, zone: str, name: str, seconds: float) -> None:
        """Delete a machine with its boot disk; absent is fine."""
        path = _instance(project, zone, name)
        try:
            done = self._rest.operate("DELETE", path, None, seconds)
        except ApiError as error:
            if is_absent(error):
                return
            _fail(path, "delete the machine", error)
        _require_success(path, "delete the machine", done)

    def set_labels(self, project: str, instance: Instance, labels: Mapping[str, str]) -> None:
        """Replace its labels."""
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
        found: dict[str, Quota] = {}
        for path in (f"projects/{project}", f"projects/{project}/regions/{region}"):
            try:
                rows = self._rest.get(path).get("quotas") or ()
            except ApiError as error:
                _fail(path, "read its quotas", error)
            for row in rows:
                metric = str(row.get("metric"))
                quota = Quota(metric, float(row.get("limit", 0)), float(row.get("usage", 0)))
                found[metric] = quota
        return found

    def _list(self, project: str, expression: str) -> Sequence[Instance]:
        path = f"projects/{project}/aggregated/instances"
        try:
            pages = self._rest.pages(path, filter=expression, returnPartialSuccess="false")
        except ApiError as error:
            _fail(path, "list the machines", error)
        zones = [zone for page in pages for zone in (page.get("items") or {}).values()]
        return [_parsed(one) for zone in zones for one in zone.get("instances") or ()]

    def _zonal(self, path: str, body: Mapping[str, Any] | None, seconds: float) -> None:
        """An operation whose failure is the zone's answer."""
        try:
            done = self._rest.operate("POST", path, body, seconds)
        except ApiError as error:
            raise refusal(error.code, error.message) from error
        for fault in _errors(done):
            raise refusal(str(fault.get("code", "")), str(fault.get("message", "")))

    def _change(
        self, project: str, instance: Instance, verb: str, body: Mapping[str, Any] | None
    ) -> None:
        path = f"{_instance(project, instance.zone, instance.name)}/{verb}"
        tried = verb.partition("?")[0]
        try:
            done = self._rest.operate("POST", path, body, SMALL_STEP_SECONDS)
        except ApiError as error:
            _fail(path.partition("?")[0], tried, error)
        _require_success(path.partition("?")[0], tried, done)


def _instance(project: str, zone: str, name: str) -> str:
    return f"projects/{project}/zones/{zone}/instances/{name}"


def _errors(operation: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (operation.get("error") or {}).get("errors") or ()


def _require_success(path: str, tried: str, operation: Mapping[str, Any]) -> None:
    faults = _errors(operation)
    if faults:
        said = "; ".join(f"{one.get('code')}: {one.get('message')}" for one in faults)
        raise CommandFailedError(path, tried, said, "correct what it names, then run again")


def _fail(path: str, tried: str, error: ApiError) -> NoReturn:
    raise CommandFailedError(
        path, tried, f"{error.code}: {error.message}", "correct what it names, then run again"
    ) from error


def _parsed(found: Mapping[str, Any]) -> Instance:
    interface: Mapping[str, Any] = next(iter(found.get("networkInterfaces") or [{}]), {})
    access: Mapping[str, Any] = next(iter(interface.get("accessConfigs") or [{}]), {})
    tags = found.get("tags") or {}
    return Instance(
        name=str(found.get("name", "")),
        zone=str(found.get("zone", "")).rpartition("/")[2],
        status=str(found.get("status", "")),
        instance_id=str(found.get("id", "")),
        address=str(interface.get("networkIP", "")),
        public_address=str(access.get("natIP", "")),
        labels={str(key): str(value) for key, value in (found.get("labels") or {}).items()},
        label_fingerprint=str(found.get("labelFingerprint", "")),
        tags=tuple(str(one) for one in tags.get("items") or ()),
        tag_fingerprint=str(tags.get("fingerprint", "")),
        deletion_protection=bool(found.get("deletionProtection", False)),
        machine_type=str(found.get("machineType", "")).rpartition("/")[2],
    )
