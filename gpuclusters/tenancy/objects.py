"""The objects that isolate one tenant, rendered from its Tenancy and the cluster's ranges."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuclusters.core.finding import Finding
from gpuclusters.core.ports import ObjectKind
from gpuclusters.tenancy import isolation
from gpuclusters.tenancy.isolation import TENANT_LABEL, Network
from gpuclusters.tenancy.model import TenancySpec
from gpuclusters.tenancy.programs import TENANTS_PROGRAMS, Accounts, tenant_role

NAMESPACE = ObjectKind("", "v1", "namespaces", "Namespace", namespaced=False)
NODE = ObjectKind("", "v1", "nodes", "Node", namespaced=False)
POD = ObjectKind("", "v1", "pods", "Pod", namespaced=True)
RESOURCE_QUOTA = ObjectKind("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
LIMIT_RANGE = ObjectKind("", "v1", "limitranges", "LimitRange", namespaced=True)
SERVICE_ACCOUNT = ObjectKind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
RUNTIME_CLASS = ObjectKind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
_RBAC = "rbac.authorization.k8s.io"
ROLE_BINDING = ObjectKind(_RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True)
_CILIUM = ("cilium.io", "v2")
NETWORK_POLICY = ObjectKind(
    *_CILIUM, "ciliumnetworkpolicies", "CiliumNetworkPolicy", namespaced=True
)
BASELINE_POLICY = ObjectKind(
    *_CILIUM, "ciliumclusterwidenetworkpolicies", "CiliumClusterwideNetworkPolicy", namespaced=False
)
_ADMISSION = ("admissionregistration.k8s.io", "v1")
ADMISSION_POLICY = ObjectKind(
    *_ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
ADMISSION_BINDING = ObjectKind(
    *_ADMISSION,
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)

MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "gpu-clusters"
LIMIT_RANGE_NAME = "tenant"
DEFAULT_ACCOUNT = "default"


@dataclass(frozen=True, slots=True)
class Child:
    """One object of a tenant, as it must be."""

    kind: ObjectKind
    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


def home(spec: TenancySpec) -> Child:
    return _child(
        NAMESPACE,
        spec,
        spec.namespace,
        labels=spec.pod_security.labels(),
        annotations=isolation.namespace_annotations(spec.sizes, spec.images),
    )


def roles(spec: TenancySpec, accounts: Accounts) -> Iterator[Child]:
    """What lets the cluster's programs work in the namespace."""
    for program in TENANTS_PROGRAMS:
        name, namespace = tenant_role(program), accounts.namespace(program)
        role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
        account = {"kind": SERVICE_ACCOUNT.kind, "name": program.value, "namespace": namespace}
        yield _child(ROLE_BINDING, spec, name, roleRef=role, subjects=[account])


def inside(spec: TenancySpec, network: Network, *, closing: bool = False) -> tuple[Child, ...]:
    """What the namespace holds beside the roles; `closing` lets no new pod in."""
    hard = dict(spec.quota.hard) | ({"pods": "0"} if closing else {})
    limits = [limit.document() for limit in spec.limits]
    return (
        _child(RESOURCE_QUOTA, spec, spec.quota.name, spec={"hard": hard}),
        _child(LIMIT_RANGE, spec, LIMIT_RANGE_NAME, spec={"limits": limits}),
        # The account of pods that name none: it must not hand them the API server. Pods pull with its secret.
        _child(
            SERVICE_ACCOUNT,
            spec,
            DEFAULT_ACCOUNT,
            automountServiceAccountToken=False,
            imagePullSecrets=[{"name": isolation.PULL_SECRET}] if spec.pull_secret else [],
        ),
        _child(
            NETWORK_POLICY,
            spec,
            isolation.POLICY,
            specs=isolation.network_policy(spec.egress, network, spec.namespace),
        ),
    )


def is_ours(namespace: Mapping[str, Any], tenant: str) -> bool:
    """Whether a namespace belongs to the tenant; any other is never touched."""
    labels = namespace["metadata"].get("labels") or {}
    return bool(labels.get(TENANT_LABEL) == tenant)


def foreign(spec: TenancySpec) -> Finding:
    """Of a namespace that is not the tenant's: why nothing is done."""
    return Finding(
        "tenancy.foreign",
        f"namespace {spec.namespace} is not the tenant's (no label {TENANT_LABEL}={spec.tenant}), "
        "so nothing in it is touched; delete it, or make the tenancy with another namespace",
    )


def remains(namespace: Mapping[str, Any]) -> str:
    """Of a namespace that is being deleted: what it still holds, as Kubernetes says."""
    said = [
        str(condition.get("message"))
        for condition in (namespace.get("status") or {}).get("conditions") or ()
        if condition.get("status") == "True"
    ]
    why = f": {'; '.join(said)}" if said else ""
    return f"namespace {namespace['metadata']['name']} is being deleted{why}"


def _child(
    kind: ObjectKind,
    tenancy: TenancySpec,
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **content: Any,
) -> Child:
    own = {TENANT_LABEL: tenancy.tenant, MANAGED_LABEL: MANAGER, **(labels or {})}
    more = {"annotations": dict(annotations)} if annotations else {}
    space = tenancy.namespace if kind.namespaced else ""
    return Child(kind, kind.body(name, space, labels=own, **more) | content)


Object = Mapping[str, Any]

# Which parts of an object are whole, so that nothing may stand beside what we say.
_WHOLE = ("spec", "specs")


def drifted(wanted: Object, live: Object, answered: Object | None) -> bool:
    """Whether `live` must be applied again; `answered` is `wanted` with the server's defaults, if known."""
    for section in ("labels", "annotations"):
        there = live["metadata"].get(section) or {}
        if any(there.get(k) != v for k, v in (wanted["metadata"].get(section) or {}).items()):
            return True
    expected = wanted if answered is None else answered
    return any(live.get(part) != expected.get(part) for part in _parts(wanted))


def foreign_fields(wanted: Object, answered: Object) -> dict[str, Any]:
    """A merge patch that removes what others wrote beside us, empty if there is nothing.

    Server-side apply leaves others' fields alone; in the spec of a policy or quota they could widen it.
    """
    if not _is_whole(wanted):
        return {}
    patch: dict[str, Any] = {}
    for part in _WHOLE:
        mine, there = wanted.get(part), answered.get(part)
        if mine is None and there is not None:
            patch[part] = None
        elif extra := _extra(mine, there):
            patch[part] = extra
    return patch


def _extra(mine: Any, there: Any) -> dict[str, Any]:
    """Keys that are ours at no depth; lists belong to one manager as a whole."""
    if not isinstance(mine, Mapping) or not isinstance(there, Mapping):
        return {}
    nested = {key: _extra(mine[key], there.get(key)) for key in mine}
    return {key: None for key in there if key not in mine} | {k: v for k, v in nested.items() if v}


def _is_whole(wanted: Object) -> bool:
    return any(part in wanted for part in _WHOLE)


def _parts(wanted: Object) -> set[str]:
    content = {key for key in wanted if key not in ("apiVersion", "kind", "metadata", "status")}
    return content | (set(_WHOLE) if _is_whole(wanted) else set())
