"""The cluster, its tenants, and what Helm keeps of its releases, against what was declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import yaml
from pydantic import ValidationError

from gpuclusters.core.errors import AdapterError, DeniedError, InvalidAnswerError
from gpuclusters.core.model import LOADER
from gpuclusters.core.ports import ObjectKind
from gpuclusters.drift import comparing, nodes, resources
from gpuclusters.drift.comparing import managers, who
from gpuclusters.drift.engine import View
from gpuclusters.drift.nodes import Expected
from gpuclusters.drift.report import Finding, Looked, Told, Unseen, of_lines
from gpuclusters.gpu_operator.helm_release import revisions
from gpuclusters.gpu_operator.objects import CLUSTER_POLICY
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.review.plan import HELM_RELEASE
from gpuclusters.review.text import whole
from gpuclusters.tenancy import cluster as reconcile_tenancy
from gpuclusters.tenancy.isolation import POLICY
from gpuclusters.tenancy.model import TENANCY, TenancySpec, tenancy_object
from gpuclusters.tenancy.objects import NETWORK_POLICY, NODE, RESOURCE_QUOTA
from gpuclusters.tenancy.on_demand import is_on_demand
from gpuclusters.tenancy.proof import NOT_TRIED, Proof

Object = Mapping[str, Any]

_KINDS: Final[Mapping[str, str]] = {
    "quota": "tenant.quota-changed",
    "limit-range": "tenant.limit-range-changed",
    "network-policy": "tenant.network-policy-missing",
    "network-baseline": "tenant.network-policy-missing",
    "network-agents": "tenant.network-policy-missing",
    "admission-rules": "tenant.admission-policy-changed",
    "admission-policy": "tenant.admission-policy-changed",
}
_WANTED: Final[Mapping[str, str]] = {
    "namespace": "the tenant's namespace, active and labelled",
    "quota": "the declared quota",
    "limit-range": "the declared limits",
    "service-account": "a default account that hands out no token",
    "roles": "the roles of API and controllers, bound to them alone",
    "network-policy": "the tenant's own policy, in force",
    "network-baseline": "the policy for all tenants, in force",
    "network-agents": "an agent on each node that puts policies into force",
    "admission-rules": "rules for pods and for the programs, bound and denying",
    "pod-security": "pods with the host's network are refused",
    "admission-policy": "pods without a runtime class are refused",
    "allowed-pod": "a pod that keeps all rules is accepted",
}


def tenancy_findings(
    spec: TenancySpec,
    tenancy: Object | None,
    proofs: Sequence[Proof],
    owners: Mapping[str, Object],
) -> Iterator[Finding]:
    """How one tenancy differs; `owners` are the objects that proofs are about, for who changed them."""
    name, what = spec.tenant, f"Tenancy {spec.tenant}"
    if tenancy is None:
        yield Finding("tenant.tenancy-missing", name, what, "the object", "no such object")
        return
    if fields := comparing.differing(tenancy_object(spec), tenancy):
        told = comparing.changed(tenancy, fields)
        yield of_lines("tenant.tenancy-changed", name, what, "as applied by `up`", **told)
    for proof in proofs:
        if proof.fault is None or proof.fault.code == NOT_TRIED:
            continue
        code = _KINDS.get(proof.name, "tenant.not-enforced")
        by = who(owners.get(proof.name, {}), [("spec",)])
        declared = _WANTED.get(proof.name, "enforced")
        yield Finding(code, name, proof.name, declared, proof.fault.problem, by=by)


def unknown_tenancies(declared: frozenset[str], live: Sequence[Object]) -> Iterator[Finding]:
    """Tenancies that the stack does not have."""
    for tenancy in live:
        name = str(tenancy["metadata"]["name"])
        if name not in declared:
            yield Finding("tenant.tenancy-unknown", name, name, "no such tenant", "a Tenancy")


_KEEP = "helm.sh/resource-policy"
_HOOK = "helm.sh/hook"
RELEASE_NAME, RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"


class ManifestError(Exception):
    """A manifest that cannot be read. One sentence, with nothing of its content."""


class Reference(NamedTuple):
    """What names an object in a cluster."""

    api_version: str
    kind: str
    namespace: str
    """Empty for objects of the whole cluster."""
    name: str

    @property
    def called(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.kind} {self.name}{place}"


@dataclass(frozen=True, slots=True)
class Release:
    name: str
    namespace: str
    objects: tuple[Mapping[str, Any], ...]


def objects_of(manifest: str | None, where: str) -> tuple[Mapping[str, Any], ...]:
    """The objects that `helm get manifest` prints; ManifestError if it is not YAML of objects."""
    if manifest is None:
        raise ManifestError("it is not in the form that Helm keeps")
    try:
        documents = list(yaml.load_all(manifest, LOADER))
    except yaml.YAMLError:
        # Not chained: the parser's message quotes the line, which may be of a Secret.
        raise ManifestError(f"the manifest of {where} is not YAML") from None
    found: list[Mapping[str, Any]] = []
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, Mapping) or not document.get("kind"):
            raise ManifestError(f"the manifest of {where} has something in it that is no object")
        items = document.get("items") if str(document["kind"]).endswith("List") else None
        found += [item for item in items if isinstance(item, Mapping)] if items else [document]
    return tuple(found)


def reference(body: Mapping[str, Any], namespace: str) -> Reference:
    """What names an object; `namespace` is empty for kinds of the whole cluster."""
    version, kind = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
    return Reference(version, kind, namespace, str((body.get("metadata") or {}).get("name") or ""))


def object_findings(
    release: Release,
    wanted: Mapping[Reference, Mapping[str, Any]],
    live: Mapping[Reference, Mapping[str, Any]],
    strays: Sequence[Reference] = (),
) -> Iterator[Finding]:
    """How the objects of a release differ; `strays` say that they are of it, and its manifest lacks them."""
    name, namespace = release.name, release.namespace
    apply = f"kubectl apply --server-side --force-conflicts -n {namespace} -f -"
    puts_back = (
        f"`helm get manifest {name} -n {namespace} | {apply}` puts all objects of the release back"
    )
    where = f"{namespace}/{name}"
    more: dict[str, Any] = {"up": False, "do": puts_back}
    for ref, body in sorted(wanted.items()):
        found = live.get(ref)
        if found is None:
            declared, none = "rendered by the release", "no such object"
            yield Finding("helm.object-missing", where, ref.called, declared, none, **more)
        elif fields := comparing.differing(_content(body), found):
            declared, told = "as rendered by the release", comparing.changed(found, fields)
            yield of_lines("helm.object-changed", where, ref.called, declared, **told, **more)
    for ref in sorted(strays):
        said = ("not in the release", "there, with the release's mark")
        yield Finding("helm.object-extra", where, ref.called, *said, up=False)


def _content(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without what Helm reads for itself and what names the object."""
    metadata = {k: v for k, v in (body.get("metadata") or {}).items() if k != "namespace"}
    notes = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if not str(key).startswith((_HOOK, _KEEP))
    }
    return {**body, "metadata": {**metadata, "annotations": notes}}


ALL = "the cluster"
_TENANCY = "gpu-clusters:gpu:TenancyPolicy"
_AT_ONCE = 8
Objects = dict[Reference, Object]


def look(kubeconfig: str, view: View, expected: Expected) -> Iterator[Told]:
    """The cluster; what of it is not reached or not allowed is told, and the rest is looked at."""
    try:
        cluster = ClusterLook(kubeconfig)
        cluster.version()
    except AdapterError as error:
        yield Unseen(ALL, f"{error.where}: {error.problem}", error.remedy)
        return
    for name, part in _PARTS.items():
        try:
            yield from part(cluster, view, expected)
        except AdapterError as error:
            yield Unseen(name, error.problem, error.remedy)
    yield from _releases(cluster, view)
    yield from _objects(cluster, view)


def _nodes(cluster: ClusterLook, _view: View, expected: Expected) -> Iterator[Told]:
    live = cluster.list(NODE)
    kept: Sequence[Object] = cluster.list(GPU_LEASE) if expected.leases else ()
    yield from nodes.findings(expected, live, nodes.withheld(kept))
    yield from nodes.of_leases(expected.leases, kept, datetime.now(UTC))
    yield Looked("nodes", len(live))
    if expected.leases:
        yield Looked("leases", len(kept))


def _tenants(cluster: ClusterLook, view: View, expected: Expected) -> Iterator[Told]:
    if expected.tenants is None:
        return
    seen = 0
    for urn, resource in view.states.items():
        if resource.type != _TENANCY:
            continue
        try:
            found = list(_tenancy(cluster, resource.inputs))
        except (AdapterError, ValidationError) as error:
            why = error.problem if isinstance(error, AdapterError) else "its state is not valid"
            yield Unseen(f"tenant {resource.at('tenant')}", why)
            continue
        seen += 1
        yield from (replace(one, urn=urn, up=view.mended(urn)) for one in found)
    live = cluster.list(TENANCY)
    if expected.on_demand:
        live = [tenancy for tenancy in live if not is_on_demand(tenancy)]
    yield from unknown_tenancies(expected.tenants, live)
    yield Looked("tenants", seen)


def _tenancy(cluster: ClusterLook, inputs: Object) -> Iterator[Finding]:
    names = {key: inputs[key] for key in ("tenant", "namespace")}
    spec = TenancySpec.model_validate({**whole(inputs["spec"]), **names})
    tenancy = cluster.get(TENANCY, spec.tenant)
    judgement = reconcile_tenancy.observe_tenancy(spec, cluster) if tenancy is not None else None
    owners = {
        "quota": cluster.get(RESOURCE_QUOTA, spec.quota.name, spec.namespace) or {},
        "network-policy": cluster.get(NETWORK_POLICY, POLICY, spec.namespace) or {},
    }
    return tenancy_findings(spec, tenancy, judgement.proofs if judgement else (), owners)


def _operator(cluster: ClusterLook, _view: View, _expected: Expected) -> Iterator[Told]:
    """ClusterPolicies that there are; whether there should be one, the release says."""
    policies = cluster.list(CLUSTER_POLICY)
    for policy in policies:
        name = f"ClusterPolicy {policy['metadata']['name']}"
        state = str((policy.get("status") or {}).get("state") or "no state")
        if state not in ("ready", "ignored"):
            yield Finding("gpu-operator.not-ready", "cluster", name, "ready", state)
    if policies:
        yield Looked("policies of the GPU Operator", len(policies))


_PARTS = {"nodes and leases": _nodes, "tenants": _tenants, "the GPU Operator": _operator}


def _releases(cluster: ClusterLook, view: View) -> Iterator[Told]:
    objects = 0
    for urn, resource in view.states.items():
        if resource.type != HELM_RELEASE:
            continue
        namespace, name = resource.release
        try:
            release = cluster.release(name, namespace)
            parts = cluster.of_release(release) if release else None
        except AdapterError as error:
            yield Unseen(f"Helm release {namespace}/{name}", error.problem, error.remedy)
            continue
        if release is None or parts is None:
            said = ("deployed", "no release", "", view.mended(urn), "", urn)
            yield Finding("helm.release-missing", namespace, name, *said)
        else:
            objects += len(parts[0])
            yield from object_findings(release, *parts)
    if objects:
        yield Looked("objects of Helm releases", objects)


def _objects(cluster: ClusterLook, view: View) -> Iterator[Finding]:
    """Who changed the objects of the stack: only those that differ are asked for."""
    for seen in view.resources.values():
        if not resources.is_object(seen.old.type):
            continue
        changed = {field.path for field in resources.changed_fields(seen)}
        if not changed:
            continue
        try:
            live: Object = cluster.object(*resources.reference(seen.old)) or {}
        except DeniedError:
            live = {}
        stops = resources.in_the_way(seen, managers(live, changed))
        for finding in resources.of_resource(view, seen):
            told = replace(finding, by=who(live, changed))
            yield _refused(told, stops) if stops else told


def _refused(finding: Finding, stops: Sequence[str]) -> Finding:
    """What `up` does where others own the fields: it stops, and says whose they are."""
    if finding.id.startswith("node.label"):
        return replace(finding, up=False)  # the code's own remedy sets the label, whoever has it
    first = f"`up` stops at fields of {', '.join(stops)}: let it give them up"
    return replace(finding, up=False, do=f"{first}, then `gpu-clusters up --refresh`")


class ClusterLook(KubernetesObjects):
    """The objects of a cluster, whatever their kind, and the releases of Helm in it."""

    def __init__(self, kubeconfig: str) -> None:
        super().__init__(kubeconfig)
        self._kinds: dict[str, Mapping[str, ObjectKind]] = {}

    def object(
        self, api_version: str, kind: str, namespace: str, name: str
    ) -> dict[str, Any] | None:
        """An object; None if it or its kind is not there."""
        found = self.kinds(api_version).get(kind)
        return None if found is None else self.get(found, name, namespace)

    def kinds(self, api_version: str) -> Mapping[str, ObjectKind]:
        """The kinds that the server knows of a version, by name; none if it does not know the version."""
        if api_version not in self._kinds:
            group, _, version = api_version.rpartition("/")
            root = f"/apis/{api_version}" if group else f"/api/{api_version}"
            answer = self._or_none("GET", root, f"list the kinds of {api_version}") or {}
            found = (
                ObjectKind(group, version, str(e["name"]), str(e["kind"]), bool(e["namespaced"]))
                for e in answer.get("resources") or ()
                if "/" not in str(e.get("name"))
            )
            self._kinds[api_version] = {one.kind: one for one in found}
        return self._kinds[api_version]

    def release(self, name: str, namespace: str) -> Release | None:
        """The release as Helm keeps it: its newest deployed revision, else its newest; None without one."""
        known = revisions(self, namespace, name)
        if not known:
            return None
        deployed = [one for one in known if one.status == "deployed"]
        tried = f"read the Helm release {namespace}/{name}"
        try:
            objects = objects_of((deployed or known)[-1].manifest, f"{namespace}/{name}")
        except ManifestError as error:
            # Not chained: messages of parsers quote what they were given.
            remedy = "install the release anew"
            raise InvalidAnswerError(self.target, tried, str(error), remedy) from None
        return Release(name, namespace, objects)

    def of_release(self, release: Release) -> tuple[Objects, Objects, list[Reference]]:
        """The objects of a release: as rendered, those that are there, and those that say they are of it."""
        wanted: Objects = {}
        places: dict[tuple[str, str, str], ObjectKind] = {}
        for body in release.objects:
            version = str(body.get("apiVersion") or "")
            kind = self.kinds(version).get(str(body["kind"]))
            stated = str((body.get("metadata") or {}).get("namespace") or release.namespace)
            namespace = "" if kind is not None and not kind.namespaced else stated
            wanted[reference(body, namespace)] = body
            if kind is not None:
                places[version, kind.kind, namespace] = kind
        live: Objects = {}
        strays: list[Reference] = []
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            lists = pool.map(lambda at: self.list(places[at], at[2]), sorted(places))
            for (version, name, namespace), found in zip(sorted(places), lists, strict=True):
                for one in found:
                    ref = Reference(version, name, namespace, str(one["metadata"]["name"]))
                    if ref in wanted:
                        # Entries of a list do not say what they are.
                        live[ref] = {"apiVersion": version, "kind": name, **one}
                    elif _is_of(one, release):
                        strays.append(ref)
        return wanted, live, strays


def _is_of(body: Object, release: Release) -> bool:
    notes: Object = body["metadata"].get("annotations") or {}
    owners: Iterable[Any] = body["metadata"].get("ownerReferences") or ()
    marks = (notes.get(RELEASE_NAME), notes.get(RELEASE_NAMESPACE))
    return not owners and marks == (release.name, release.namespace)
