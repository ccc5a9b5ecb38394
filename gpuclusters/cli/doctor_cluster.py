"""`doctor`: the Kubernetes cluster, what its kubeconfig may do, and whether its nodes are as they must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuclusters.cli.diagnosis import Diagnosis, failure, shortened, unreachable, warning, well
from gpuclusters.compat import known_errors
from gpuclusters.compat.known_errors import KnownError
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.plan import namespace, table
from gpuclusters.container_api.container import EVENT, POD
from gpuclusters.core.errors import AdapterError
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.tenancy.objects import NAMESPACE, NODE

AREA = "cluster"
_RIGHTS: tuple[Mapping[str, str], ...] = (
    {"verb": "create", "group": "", "resource": "namespaces"},
    {"verb": "create", "group": "apiextensions.k8s.io", "resource": "customresourcedefinitions"},
    {"verb": "create", "group": "rbac.authorization.k8s.io", "resource": "clusterroles"},
    {"verb": "bind", "group": "rbac.authorization.k8s.io", "resource": "clusterroles"},
    {"verb": "create", "group": "node.k8s.io", "resource": "runtimeclasses"},
    {
        "verb": "create",
        "group": "admissionregistration.k8s.io",
        "resource": "validatingadmissionpolicies",
    },
    {"verb": "patch", "group": "", "resource": "nodes"},
)
"""What the stack does with the cluster."""
_ABSENT = ("not joined", "`gpu-clusters up` lets it join", "node.missing")


def cluster(config: CaasConfig, kubeconfig: str) -> Iterator[Diagnosis]:
    """Whether the API server answers, lets us do what `up` does, and has the nodes."""
    objects = KubernetesObjects(kubeconfig)
    try:
        yield well(AREA, f"Kubernetes {objects.version()} at {objects.target}")
        forbidden = [right for right in _RIGHTS if not objects.may_we(right)]
        if forbidden:
            shown = ", ".join(f"{right['verb']} {right['resource']}" for right in forbidden)
            yield failure(
                AREA,
                f"the kubeconfig's account may not {shown}",
                "take the kubeconfig of an administrator (cluster-admin)",
                "doctor.kubeconfig-rights",
            )
        else:
            yield well(AREA, "the account may do what `up` does")
        if objects.get(NAMESPACE, config.programs.namespace) is None:
            yield well(AREA, "nothing of this stack is in it yet; `up` brings it")
            return
        nodes = {node["metadata"]["name"]: node for node in objects.list(NODE)}
        theirs = [namespace(config, tenant) for tenant in config.tenants]
        events, pods = (
            [one for where in theirs for one in objects.list(kind, where)] for kind in (EVENT, POD)
        )
    except AdapterError as error:
        yield unreachable(AREA, error)
        return
    yield from _nodes(config, nodes)
    yield from _containers(events, pods)


def _containers(
    events: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]
) -> Iterator[Diagnosis]:
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
        text = f"{shortened(names)}: {error.cause}"
        yield warning(AREA, text, error.remedy, error.code)


def _note(
    found: dict[KnownError, list[str]], error: KnownError | None, where: str, name: str
) -> None:
    if error is not None:
        names = found.setdefault(error, [])
        if f"{where}/{name}" not in names:
            names.append(f"{where}/{name}")


def _nodes(config: CaasConfig, nodes: Mapping[str, Mapping[str, Any]]) -> Iterator[Diagnosis]:
    """Row 19 of the known failures: readiness, labels, and as many GPUs as the board has."""
    fine, wrong = 0, dict[tuple[str, str, str], list[str]]()
    for wanted in config.nodes:
        node = nodes.get(wanted.name)
        problems = list(_problems(config, node)) if node is not None else [_ABSENT]
        for problem in problems:
            wrong.setdefault(problem, []).append(wanted.name)
        fine += not problems
    for (text, fix, code), names in wrong.items():
        yield warning(AREA, f"{shortened(names)}: {text}", fix, code)
    if fine:
        yield well(AREA, f"{fine} of {len(config.nodes)} nodes ready with all GPUs")


def _problems(config: CaasConfig, node: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    status = node.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    if conditions.get("Ready") != "True":
        yield "not Ready", "`kubectl describe node NODE`", "node.not-ready"
    resource = config.device_access.resource_name
    count = int((status.get("allocatable") or {}).get(resource, 0))
    modules = max(table(config).sizes)
    if count != modules:
        yield (
            f"offers {count} {resource} instead of {modules}",
            "`gpu-clusters up` brings the device plugin; GPUs that are leased or under quarantine are "
            "not offered (`kubectl get gpuleases`)",
            "node.allocatable-higher" if count > modules else "node.allocatable-lower",
        )
    labels = node["metadata"].get("labels") or {}
    for key, value in config.kata.node_selector.items():
        if labels.get(key) != value:
            yield (
                f"lacks the label {key}={value}",
                "`gpu-clusters up`; without it no VM is scheduled there",
                "node.label-missing",
            )
