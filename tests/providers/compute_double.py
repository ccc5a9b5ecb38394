"""The part of the Compute API that machines need, on loopback: zones with and without stock, quotas.

Answers have the shape of Compute Engine API v1: operations are begun, waited for, and hold their errors; an
insert into a zone without stock ends as an operation with ZONE_RESOURCE_POOL_EXHAUSTED and leaves nothing.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fixtures.loopback import Answering, serving

TOKEN = "a-token-for-the-double"
_PATH = re.compile(r"/compute/v1/projects/(?P<project>[^/]+)/?(?P<rest>.*)")
_ZONE = re.compile(r"zones/(?P<zone>[^/]+)/(?P<what>instances|operations)/?(?P<rest>.*)")


@dataclass
class Cloud:
    """What the double knows; tests read and write it."""

    instances: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """By zone and name."""
    refuses: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By zone: code and message of every operation that would need a machine."""
    quotas: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Limit and usage of the region, by metric."""
    project_quotas: dict[str, tuple[float, float]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    denied: str = ""
    begins: list[str] = field(default_factory=list)
    """Names of machines whose insert is begun and whose answer is lost."""
    limited: int = 0
    """How many calls are told to come later."""
    stuck: bool = False
    """Operations never end."""
    nonsense: bool = False
    """Somebody in between answers."""
    url: str = ""
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reset(self) -> None:
        """As new."""
        vars(self).update(vars(Cloud(url=self.url)) | {"lock": self.lock})

    def add(self, zone: str, body: dict[str, Any], status: str = "RUNNING") -> dict[str, Any]:
        """A machine that is there."""
        number = len(self.instances) + 2
        made = {
            **body,
            "id": str(1000 + number),
            "zone": f"{self.url}projects/p/zones/{zone}",
            "status": status,
            "labelFingerprint": "l0",
            "tags": {**body.get("tags", {}), "fingerprint": "t0"},
        }
        interface = {**(body.get("networkInterfaces") or [{}])[0], "networkIP": f"10.10.0.{number}"}
        if interface.get("accessConfigs"):
            interface["accessConfigs"] = [{"natIP": f"203.0.113.{number}"}]
        made["networkInterfaces"] = [interface]
        self.instances[(zone, body["name"])] = made
        return made

    def inserts(self) -> list[str]:
        """Zones that were asked to make a machine, in order."""
        return [
            found[1]
            for call in self.calls
            if (found := re.fullmatch(r"POST .*/zones/([^/]+)/instances", call))
        ]


class _Handler(Answering):
    cloud: Cloud

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        with self.cloud.lock:
            status, answer = self._decide(self.command, body)
        if not self.cloud.nonsense:
            self.answer(status, answer)
            return
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"<html>proxy")

    do_POST = do_DELETE = do_GET

    def _decide(self, method: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(self.path)
        self.cloud.calls.append(f"{method} {parts.path}")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "authError", "Invalid Credentials")
        if self.cloud.limited:
            self.cloud.limited -= 1
            return _error(403, "rateLimitExceeded", "Rate Limit Exceeded")
        if self.cloud.denied:
            return _error(403, "forbidden", self.cloud.denied)
        found = _PATH.fullmatch(parts.path)
        assert found, self.path
        rest = found["rest"]
        if rest == "":
            return 200, {"quotas": _quotas(self.cloud.project_quotas)}
        if rest.startswith("regions/"):
            return 200, {"quotas": _quotas(self.cloud.quotas)}
        if rest == "aggregated/instances":
            return 200, self._search(parse_qs(parts.query)["filter"][0])
        zone = _ZONE.fullmatch(rest)
        assert zone, self.path
        if zone["what"] == "operations":
            return 200, self.cloud.operations[zone["rest"].partition("/")[0]]
        return self._instances(method, zone["zone"], zone["rest"], body, parse_qs(parts.query))

    def _search(self, expression: str) -> dict[str, Any]:
        key, _, value = (one.strip().strip('"') for one in expression.partition("="))
        items: dict[str, Any] = {"zones/empty": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}
        for (zone, name), one in self.cloud.instances.items():
            label = one.get("labels", {}).get(key.removeprefix("labels."))
            if (key == "name" and name == value) or (key != "name" and label == value):
                items.setdefault(f"zones/{zone}", {"instances": []})["instances"].append(one)
        return {"items": items}

    def _instances(
        self, method: str, zone: str, rest: str, body: dict[str, Any], query: dict[str, list[str]]
    ) -> tuple[int, dict[str, Any]]:
        name, _, verb = rest.partition("/")
        if not name:
            return self._insert(zone, body)
        there = self.cloud.instances.get((zone, name))
        if there is None:
            return _error(404, "notFound", f"The resource '{name}' was not found")
        if method == "GET":
            return 200, there
        if method == "DELETE":
            del self.cloud.instances[(zone, name)]
        elif verb == "start":
            if refused := self.cloud.refuses.get(zone):
                return 200, self._operation(zone, refused)
            there["status"] = "RUNNING"
        elif verb == "setLabels":
            assert body["labelFingerprint"] == there["labelFingerprint"]
            there["labels"] = body["labels"]
        elif verb == "setTags":
            assert body["fingerprint"] == there["tags"]["fingerprint"]
            there["tags"] = {"items": body["items"], "fingerprint": "t1"}
        elif verb == "setDeletionProtection":
            there["deletionProtection"] = query["deletionProtection"] == ["true"]
        else:
            raise AssertionError(verb)
        return 200, self._operation(zone)

    def _insert(self, zone: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.cloud.bodies.append(body)
        if (zone, body["name"]) in self.cloud.instances:
            return _error(409, "alreadyExists", f"The resource '{body['name']}' already exists")
        if refused := self.cloud.refuses.get(zone):
            return 200, self._operation(zone, refused)
        self.cloud.add(zone, body)
        if body["name"] in self.cloud.begins:
            self.cloud.begins.remove(body["name"])
            return 502, {"error": {"code": 502, "message": "Bad Gateway", "errors": []}}
        return 200, self._operation(zone)

    def _operation(self, zone: str, error: tuple[str, str] | None = None) -> dict[str, Any]:
        name = f"operation-{len(self.cloud.operations)}"
        link = f"{self.cloud.url}projects/p/zones/{zone}/operations/{name}"
        status = "RUNNING" if self.cloud.stuck else "DONE"
        done: dict[str, Any] = {"name": name, "selfLink": link, "status": status}
        if error:
            done["error"] = {"errors": [{"code": error[0], "message": error[1]}]}
        self.cloud.operations[name] = done
        return {"name": name, "selfLink": link, "status": "RUNNING", "operationType": "insert"}


def _quotas(rows: dict[str, tuple[float, float]]) -> list[dict[str, Any]]:
    return [{"metric": key, "limit": one[0], "usage": one[1]} for key, one in rows.items()]


def _error(status: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    details = [{"reason": reason, "message": message}]
    return status, {"error": {"code": status, "message": message, "errors": details}}


@contextmanager
def compute_double() -> Iterator[Cloud]:
    """A running double; its `url` is what `gcp:computeCustomEndpoint` is set to."""
    cloud = Cloud()
    handler = type("Handler", (_Handler,), {"cloud": cloud})
    with serving(handler) as url:
        cloud.url = f"{url}/compute/v1/"
        yield cloud
