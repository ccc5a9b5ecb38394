"""`doctor`: the Kubernetes cluster, what its kubeconfig may do, and whether its nodes are as they must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuclusters.cli.diagnosis import Diagnosis, failure, shortened, unreachable, warning, well
from gpuclusters.compat import known_errors
from gpuclusters.compat.known_errors import KnownError
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.drift_expectations import expected
from gpuclusters.config.plan import namespace
from gpuclusters.container_api.container import EVENT
from gpuclusters.core.errors import AdapterError
from gpuclusters.drift import nodes
from gpuclusters.drift.finding import Finding
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.tenancy.objects import NAMESPACE, NODE, POD

AREA = "cluster"
_ADMISSION = "admissionregistration.k8s.io"
Object = Mapping[str, Any]
_RIGHTS: tuple[Mapping[str, str], ...] = (
    {"verb": "create", "group": "", "resource": "namespaces"},
    {"verb": "create", "group": "apiextensions.k8s.io", "resource": "customresourcedefinitions"},
    {"verb": "create", "group": "rbac.authorization.k8s.io", "resource": "clusterroles"},
    {"verb": "bind", "group": "rbac.authorization.k8s.io", "resource": "clusterroles"},
    {"verb": "create", "group": "node.k8s.io", "resource": "runtimeclasses"},
    {"verb": "create", "group": _ADMISSION, "resource": "validatingadmissionpolicies"},
    {"verb": "patch", "group": "", "resource": "nodes"},
)
"""What the stack does with the cluster."""


def cluster(
    config: CaasConfig, kubeconfig: str, others: frozenset[str] = frozenset()
) -> Iterator[Diagnosis]:
    """Whether the API server answers, lets us do what `up` does, and has the nodes (but `others`)."""
    objects = KubernetesObjects(kubeconfig)
    try:
        yield well(AREA, f"Kubernetes {objects.version()} at {objects.target}")
        forbidden = [right for right in _RIGHTS if not objects.may_we(right)]
        if forbidden:
            shown = ", ".join(f"{right['verb']} {right['resource']}" for right in forbidden)
            text = f"the kubeconfig's account may not {shown}"
            yield failure(AREA, text, "doctor.kubeconfig-rights")
        else:
            yield well(AREA, "the account may do what `up` does")
        if objects.get(NAMESPACE, config.programs.namespace) is None:
            yield well(AREA, "nothing of this stack is in it yet; `up` brings it")
            return
        found = _nodes(config, objects.list(NODE), objects.list(GPU_LEASE), others)
        theirs = [namespace(config, tenant) for tenant in config.tenants]
        events, pods = (
            [one for where in theirs for one in objects.list(kind, where)] for kind in (EVENT, POD)
        )
    except AdapterError as error:
        yield unreachable(AREA, error)
        return
    yield from found
    yield from _containers(events, pods)


def _containers(events: Sequence[Object], pods: Sequence[Object]) -> Iterator[Diagnosis]:
    """Rows 20 and 21: what tenants' containers that exist say, each cause once for all of them."""
    found: dict[KnownError, list[str]] = {}
    living = {(p["metadata"]["namespace"], p["metadata"]["name"]): p for p in pods}
    for event in events:
        about = event.get("involvedObject") or {}
        at = (about.get("namespace"), about.get("name"))
        if event.get("type") == "Warning" and at in living:
            _note(found, known_errors.explain("container", event.get("message") or ""), *at)
    for at, pod in living.items():
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            for state in (status.get("state") or {}, status.get("lastState") or {}):
                said = (state.get("terminated") or {}).get("message") or ""
                _note(found, known_errors.explain("guest", said), *at)
    for error, names in found.items():
        yield warning(AREA, f"{shortened(names)}: {error.cause}", error.code, error.remedy)


def _note(
    found: dict[KnownError, list[str]], error: KnownError | None, where: str, name: str
) -> None:
    if error is not None:
        names = found.setdefault(error, [])
        if f"{where}/{name}" not in names:
            names.append(f"{where}/{name}")


def _nodes(
    config: CaasConfig, live: Sequence[Object], leases: Sequence[Object], others: frozenset[str]
) -> Iterator[Diagnosis]:
    """Row 19 of the known failures: nodes that are not as declared, each difference once for all of them."""
    wanted = expected(config, {})
    wanted = replace(wanted, others=wanted.others | others)
    found = list(nodes.findings(wanted, live, nodes.withheld(leases)))
    same: dict[tuple[str, str, str], list[Finding]] = {}
    for one in found:
        same.setdefault((one.id, one.declared, one.found), []).append(one)
    for (code, declared, said), some in same.items():
        names = [one.where for one in some]
        what = f"{some[0].title[0].lower()}{some[0].title[1:]} ({said}; declared: {declared})"
        fix = some[0].remedy.replace(names[0], "NODE") if len(names) > 1 else some[0].remedy
        yield warning(AREA, f"{shortened(names)}: {what}", code, fix)
    fine = len({node.name for node in config.nodes} - {one.where for one in found})
    if fine:
        yield well(AREA, f"{fine} of {len(config.nodes)} nodes are as declared, with all GPUs")
