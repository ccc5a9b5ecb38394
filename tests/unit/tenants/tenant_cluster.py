"""A cluster in memory, as tenancies, leases and maintenance see it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuclusters.core.ports import ObjectKind
from gpuclusters.tenancy.admission import POD_POLICY
from tests.fixtures.waiting import Waiting

Body = dict[str, Any]


@dataclass
class Cluster(Waiting):
    """Objects in memory; pods are judged by what a sound cluster would answer."""

    objects: dict[tuple[str, str], Body] = field(default_factory=dict)
    refusals: dict[str, str | None] = field(default_factory=dict)
    then: Callable[[Cluster], object] = lambda _cluster: None
    """What happens while somebody waits."""
    target: str = "API server https://192.0.2.9:6443"
    deleted: list[str] = field(default_factory=list)
    said: Callable[[int], Body] | None = None
    """What a controller says of a generation as soon as something is applied."""

    def add(self, plural: str, *bodies: Body) -> Cluster:
        self.objects |= {(plural, body["metadata"]["name"]): body for body in bodies}
        return self

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Body | None:
        return self.objects.get((kind.plural, name))

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[Body]:
        return [o for (plural, _), o in self.objects.items() if plural == kind.plural]

    def apply(self, kind: ObjectKind, body: Mapping[str, Any]) -> Body:
        old = self.get(kind, body["metadata"]["name"]) or {"metadata": {}}
        changed = old.get("spec") != body.get("spec")
        generation = old["metadata"].get("generation", 0) + int(changed)
        new = {**old, **copy.deepcopy(dict(body))}
        new["metadata"] = {**body["metadata"], "generation": generation}
        if self.said:
            new["status"] = self.said(generation)
        self.add(kind.plural, new)
        return new

    def delete(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        self.deleted.append(f"{namespace}/{name}" if namespace else name)
        self.objects.pop((kind.plural, name), None)

    def try_pod(self, namespace: str, body: Mapping[str, Any]) -> str | None:
        pod = body["spec"]
        if pod.get("hostNetwork"):
            return self.refusals.get("host", 'violates PodSecurity "restricted:latest"')
        if "runtimeClassName" not in pod:
            denied = f"ValidatingAdmissionPolicy '{POD_POLICY}' denied"
            return self.refusals.get("class", denied)
        return self.refusals.get("allowed")

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.then(self)


def lease(name: str, phase: str, tenant: str = "", last: str = "", node: str = "hgx-01") -> Body:
    """A lease as the API server has it; a tenant that holds it does so with its first pod."""
    status: Body = {"phase": phase}
    if tenant:
        holder = {"tenant": tenant, "namespace": f"tenant-{tenant}", "pod": f"{tenant}-1"}
        status["holder"] = holder
    if last:
        status["lastTenant"] = last
    return {"metadata": {"name": name}, "spec": {"node": node}, "status": status}


def put(body: Any, at: Sequence[str | int], value: Any) -> None:
    """Change one place of an object."""
    *path, last = at
    for step in path:
        body = body[step]
    body[last] = value
