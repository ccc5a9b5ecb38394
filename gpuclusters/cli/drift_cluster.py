"""`drift`: the cluster, its tenants, and the objects of Helm's releases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from gpuclusters.cli.drift_engine import Found
from gpuclusters.core.errors import AdapterError, DeniedError
from gpuclusters.drift import cluster_resources, helm, leases, nodes, tenancies
from gpuclusters.drift.cluster_look import ClusterLook
from gpuclusters.drift.engine import Seen, View
from gpuclusters.drift.expected import Expected
from gpuclusters.drift.finding import Finding, Unseen
from gpuclusters.drift.owners import managers, who
from gpuclusters.drift.report import Looked
from gpuclusters.gpu_operator.objects import CLUSTER_POLICY
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.tenancy import cluster as reconcile_tenancy
from gpuclusters.tenancy.isolation import POLICY
from gpuclusters.tenancy.model import TENANCY, TenancySpec
from gpuclusters.tenancy.objects import NETWORK_POLICY, NODE, RESOURCE_QUOTA

ALL = "the cluster"
"""What is told where it cannot be reached."""
_TENANCY = "gpu-clusters:gpu:TenancyPolicy"
Part = Callable[[ClusterLook, View, Expected], Found]


def look(kubeconfig: str, view: View, expected: Expected, others: frozenset[str]) -> Found:
    """The cluster; what of it is not reached or not allowed is told, and the rest is looked at."""
    try:
        cluster = ClusterLook(kubeconfig)
        cluster.version()
    except AdapterError as error:
        return Found(unseen=(Unseen(ALL, f"{error.where}: {error.problem}", error.remedy),))
    wanted = replace(expected, others=expected.others | others)
    found = Found()
    parts: tuple[tuple[str, Part], ...] = (
        ("nodes and leases", _nodes),
        ("tenants", _tenants),
        ("the GPU Operator", _operator),
    )
    for name, part in parts:
        try:
            found = found.joined(part(cluster, view, wanted))
        except AdapterError as error:
            found = found.joined(Found(unseen=(_unseen(name, error),)))
    return found.joined(_releases(cluster, view)).joined(_objects(cluster, view))


def _unseen(what: str, error: AdapterError) -> Unseen:
    return Unseen(what, error.problem, error.remedy)


def _nodes(cluster: ClusterLook, _view: View, expected: Expected) -> Found:
    live = cluster.list(NODE)
    kept: Sequence[Mapping[str, Any]] = cluster.list(GPU_LEASE) if expected.leases else ()
    findings = [
        *nodes.findings(expected, live, withheld=leases.withheld(kept)),
        *leases.findings(expected.leases, kept, datetime.now(UTC)),
    ]
    looked = [Looked("nodes", len(live))]
    if expected.leases:
        looked.append(Looked("leases", len(kept)))
    return Found(tuple(findings), (), tuple(looked))


def _tenants(cluster: ClusterLook, view: View, expected: Expected) -> Found:
    if expected.tenants is None:
        return Found()
    findings: list[Finding] = []
    unseen: list[Unseen] = []
    seen = 0
    for urn, resource in view.states.items():
        if resource.type != _TENANCY:
            continue
        try:
            findings += _tenancy(cluster, resource.inputs, up=view.mended(urn), urn=urn)
            seen += 1
        except (AdapterError, ValidationError) as error:
            why = error.problem if isinstance(error, AdapterError) else "its state is not valid"
            unseen.append(Unseen(f"tenant {resource.at('tenant')}", why))
    findings += tenancies.unknown(expected.tenants, cluster.list(TENANCY))
    return Found(tuple(findings), tuple(unseen), (Looked("tenants", seen),))


def _tenancy(
    cluster: ClusterLook, inputs: Mapping[str, Any], *, up: bool | None, urn: str
) -> Iterator[Finding]:
    spec = TenancySpec.model_validate(
        {**_whole(inputs["spec"]), "tenant": inputs["tenant"], "namespace": inputs["namespace"]}
    )
    tenancy = cluster.get(TENANCY, spec.tenant)
    judgement = reconcile_tenancy.observe_tenancy(spec, cluster) if tenancy is not None else None
    owners = {
        "quota": cluster.get(RESOURCE_QUOTA, spec.quota.name, spec.namespace),
        "network-policy": cluster.get(NETWORK_POLICY, POLICY, spec.namespace),
    }
    yield from tenancies.findings(
        spec,
        tenancy,
        judgement.proofs if judgement else (),
        {name: live for name, live in owners.items() if live is not None},
        up=up,
        urn=urn,
    )


def _whole(value: Any) -> Any:
    """Numbers as they were: a state has them as floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value


def _operator(cluster: ClusterLook, _view: View, _expected: Expected) -> Found:
    """ClusterPolicies that there are; whether there should be one, the release says."""
    policies = cluster.list(CLUSTER_POLICY)
    findings = [
        Finding(
            "gpu-operator.not-ready",
            "cluster",
            f"ClusterPolicy {p['metadata']['name']}",
            "ready",
            state,
        )
        for p in policies
        if (state := str((p.get("status") or {}).get("state") or "no state"))
        not in ("ready", "ignored")
    ]
    return Found(
        tuple(findings),
        (),
        (Looked("policies of the GPU Operator", len(policies)),) if policies else (),
    )


def _releases(cluster: ClusterLook, view: View) -> Found:
    found = Found()
    objects = 0
    for urn, resource in view.states.items():
        if resource.type != cluster_resources.HELM_RELEASE:
            continue
        status: Mapping[str, Any] = resource.outputs.get("status") or {}
        name = str(resource.at("name") or status.get("name") or resource.name)
        namespace = str(resource.at("namespace") or status.get("namespace") or "default")
        try:
            release = cluster.release(name, namespace)
            if release is None:
                missing = Finding(
                    "helm.release-missing", namespace, name, "deployed", "no release",
                    up=view.mended(urn), urn=urn,
                )  # fmt: skip
                found = found.joined(Found((missing,)))
                continue
            wanted, live, strays = cluster.of_release(release)
        except AdapterError as error:
            found = found.joined(
                Found(unseen=(_unseen(f"Helm release {namespace}/{name}", error),))
            )
            continue
        objects += len(wanted)
        found = found.joined(Found(tuple(helm.findings(release, wanted, live, strays))))
    if objects:
        found = found.joined(Found(looked=(Looked("objects of Helm releases", objects),)))
    return found


def _objects(cluster: ClusterLook, view: View) -> Found:
    """Who changed the objects of the stack: only those that differ are asked for."""
    findings: list[Finding] = []
    for urn, seen in view.resources.items():
        if not cluster_resources.is_object(seen.old.type) or seen.new is None:
            continue
        fields = cluster_resources.changed_fields(seen)
        if not fields:
            continue
        live = _live(cluster, seen)
        changed = {field.path for field in fields}
        stops = cluster_resources.in_the_way(seen, managers(live, changed))
        findings += [
            replace(finding, by=who(live, changed), **_refused(finding, stops))
            for finding in cluster_resources.cluster_object(seen, up=view.mended(urn))
        ]
    return Found(tuple(findings))


def _refused(finding: Finding, stops: Sequence[str]) -> dict[str, Any]:
    """What `up` does where others own the fields: it stops, and says whose they are."""
    if not stops:
        return {}
    if finding.id.startswith("node-label"):
        return {"up": False}  # the kind's own remedy sets the label, whoever has it
    names = ", ".join(stops)
    first = f"`up` stops at fields of {names}: let it give them up"
    return {"up": False, "do": f"{first}, then `gpu-clusters up --refresh`"}


def _live(cluster: ClusterLook, seen: Seen) -> Mapping[str, Any]:
    version, kind, namespace, name = cluster_resources.reference(seen)
    try:
        return cluster.object(version, kind, namespace, name) or {}
    except DeniedError:
        return {}
