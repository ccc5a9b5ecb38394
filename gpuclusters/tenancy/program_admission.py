"""What the accounts of the cluster's own programs may do, as ValidatingAdmissionPolicies.

Roles cannot say in which namespaces, of which shape and with which values: whoever takes an account could
make a namespace without Pod Security, label kube-system as a tenant's, or bind itself a role there. Every
rule is about the programs' accounts, except that only the controllers write the evidence in a lease.

Sources: Kubernetes' documentation of ValidatingAdmissionPolicy; KEP-4193 (a pod's token names its node).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.container_api.container import (
    CONTAINER_LABEL,
    LEASE_GATE,
    NAME_LABEL,
    USER_LABEL_PREFIX,
)
from gpuclusters.core.custom_resource import GROUP, VERSION
from gpuclusters.core.naming import RESERVED_NAMESPACES, RESERVED_PREFIX
from gpuclusters.device_plugin.decide import KUBELET_AGREES
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.tenancy.admission import WRITES, cel_list, policy, resource_rule
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import MANAGED_LABEL, MANAGER
from gpuclusters.tenancy.programs import TENANTS_PROGRAMS, Accounts, Program, tenant_role

NODE_CLAIM = "authentication.kubernetes.io/node-name"
"""Key in the user info of a pod's token: the node on which the pod runs."""
_ENFORCE = "pod-security.kubernetes.io/enforce"
_RBAC = "rbac.authorization.k8s.io"
_ALL_WRITES = (*WRITES, "DELETE")


def policies(accounts: Accounts) -> Mapping[str, dict[str, Any]]:
    """The spec of each policy by its name."""
    return {
        "gpu-clusters-program-namespaces": _namespaces(accounts),
        "gpu-clusters-program-places": _places(accounts),
        "gpu-clusters-program-roles": _roles(accounts),
        "gpu-clusters-program-pods": _pods(accounts),
        "gpu-clusters-program-tenancies": _tenancies(accounts),
        "gpu-clusters-leases": _leases(accounts),
    }


def binding(policy: str) -> dict[str, Any]:
    """The binding's spec: everywhere."""
    return {"policyName": policy, "validationActions": ["Deny", "Audit"]}


def _label(of: str, key: str) -> str:
    labels = f"{of}.metadata.labels"
    return f"({of} != null && has({labels}) && '{key}' in {labels} ? {labels}['{key}'] : '')"


def _is(accounts: Accounts, *programs: Program) -> str:
    return f"request.userInfo.username in {cel_list([accounts.user(one) for one in programs])}"


def _namespaces(accounts: Accounts) -> dict[str, Any]:
    reserved = cel_list(sorted({*RESERVED_NAMESPACES, *accounts.namespaces}))
    written = ["namespaces", "namespaces/status", "namespaces/finalize"]
    return policy(
        [resource_rule("", "v1", written, _ALL_WRITES)],
        {
            "namespaces are the controllers' to write": _is(accounts, Program.CONTROLLERS),
            "this namespace is the cluster's own": (
                f"!variables.name.startsWith('{RESERVED_PREFIX}') && !(variables.name in {reserved})"
            ),
            f"the controllers write tenants' namespaces only (label {TENANT_LABEL}), and "
            "never take the label away": (
                "object == null ? variables.before != '' : variables.tenant != ''"
            ),
            # One that the controllers made and whose label somebody took away is still the tenant's.
            "a namespace that is there does not become a tenant's": (
                "request.operation != 'UPDATE' || variables.before == variables.tenant || "
                f"(variables.before == '' && {_label('oldObject', MANAGED_LABEL)} == '{MANAGER}')"
            ),
            f"a tenant's namespace has the label {_ENFORCE}: restricted or baseline": (
                f"object == null || {_label('object', _ENFORCE)} in ['restricted', 'baseline']"
            ),
        },
        by=_is(accounts, *Program),
        variables={
            "name": "object == null ? request.name : object.metadata.name",
            "tenant": _label("object", TENANT_LABEL),
            "before": _label("oldObject", TENANT_LABEL),
        },
    )


def _places(accounts: Accounts) -> dict[str, Any]:
    core = [
        "pods",
        "pods/*",
        "resourcequotas",
        "limitranges",
        "serviceaccounts",
        "serviceaccounts/*",
    ]
    cilium = ["ciliumnetworkpolicies", "ciliumnetworkpolicies/*"]
    return policy(
        [
            resource_rule("", "v1", core, _ALL_WRITES),
            resource_rule(_RBAC, "*", ["rolebindings", "roles"], _ALL_WRITES),
            resource_rule("cilium.io", "*", cilium, _ALL_WRITES),
        ],
        {
            f"the cluster's programs write in tenants' namespaces only (label {TENANT_LABEL})": (
                f"{_label('namespaceObject', TENANT_LABEL)} != ''"
            )
        },
        by=_is(accounts, *Program),
    )


def _roles(accounts: Accounts) -> dict[str, Any]:
    each = " || ".join(
        f"(object.roleRef.name == '{tenant_role(program)}' && "
        f"s.namespace == '{accounts.namespace(program)}' && s.name == '{program}')"
        for program in TENANTS_PROGRAMS
    )
    return policy(
        [resource_rule(_RBAC, "v1", ["rolebindings"], WRITES)],
        {
            "a program binds the roles of programs in tenants' namespaces, to those "
            "programs, and nothing else": (
                "object.roleRef.kind == 'ClusterRole' && has(object.subjects) && "
                "object.subjects.size() == 1 && object.subjects.all(s, "
                f"s.kind == 'ServiceAccount' && ({each}))"
            )
        },
        by=_is(accounts, *Program),
    )


def _pods(accounts: Accounts) -> dict[str, Any]:
    by_api = _is(accounts, Program.API)
    gates, token = "object.spec.schedulingGates", "object.spec.automountServiceAccountToken"
    own = cel_list([CONTAINER_LABEL, TENANT_LABEL, NAME_LABEL])
    return policy(
        [resource_rule("", "v1", ["pods"], ["CREATE", "DELETE"])],
        {
            "pods are not this program's to write": (
                f"{by_api} || {_is(accounts, Program.CONTROLLERS)}"
            ),
            "the controllers try pods and make none": (
                f"{by_api} || object == null || (has(request.dryRun) && request.dryRun)"
            ),
            "the API makes containers: a pod is named after its container and carries the "
            "tenant of its namespace": (
                f"!variables.made || ({_label('object', CONTAINER_LABEL)} == "
                "object.metadata.name && "
                f"{_label('object', TENANT_LABEL)} == {_label('namespaceObject', TENANT_LABEL)})"
            ),
            f"labels of a container are the API's own, or begin with {USER_LABEL_PREFIX}": (
                f"!variables.made || object.metadata.labels.all(k, k in {own} || "
                f"k.startsWith('{USER_LABEL_PREFIX}'))"
            ),
            "a container has neither owners nor finalizers": (
                "!variables.made || (!has(object.metadata.ownerReferences) && "
                "!has(object.metadata.finalizers))"
            ),
            f"a container is made with the scheduling gate {LEASE_GATE}": (
                f"!variables.made || (has({gates}) && {gates}.exists(g, g.name == '{LEASE_GATE}'))"
            ),
            "a container gets no token: automountServiceAccountToken is false": (
                f"!variables.made || (has({token}) && {token} == false)"
            ),
            f"the API deletes containers only (label {CONTAINER_LABEL})": (
                f"!({by_api}) || object != null || {_label('oldObject', CONTAINER_LABEL)} != ''"
            ),
        },
        by=_is(accounts, *Program),
        variables={"made": f"{by_api} && request.operation == 'CREATE'"},
    )


def _tenancies(accounts: Accounts) -> dict[str, Any]:
    return policy(
        [resource_rule(GROUP, VERSION, [TENANCY.plural], _ALL_WRITES)],
        {
            "what a tenant is given is not for the cluster's programs to say": (
                "request.operation == 'UPDATE' && object.spec == oldObject.spec"
            )
        },
        by=_is(accounts, *Program),
    )


def _leases(accounts: Accounts) -> dict[str, Any]:
    def known(of: str) -> str:
        return f"{of} == null || !has({of}.status) ? {{}} : dyn({of}.status)"

    def same(one: str, other: str, free: Sequence[str]) -> str:
        """Neither has what the other has not, but for the keys that are free."""
        each = (
            (f"variables.{one}", f"variables.{other}"),
            (f"variables.{other}", f"variables.{one}"),
        )
        return " && ".join(
            f"{a}.all(k, k in {cel_list(free)} || (k in {b} && {a}[k] == {b}[k]))" for a, b in each
        )

    def part(of: str, key: str, empty: str) -> str:
        return f"'{key}' in {of} ? {of}.{key} : {empty}"

    def plugins(expression: str) -> str:
        return f"!variables.byPlugin || ({expression})"

    by_controllers = _is(accounts, Program.CONTROLLERS)
    extra = "request.userInfo.extra"
    unchanged = (
        same("now", "before", ("conditions", "holder")),
        same("holder", "holderBefore", ("allocated",)),
    )
    return policy(
        [
            resource_rule(
                GROUP, VERSION, [GPU_LEASE.plural, f"{GPU_LEASE.plural}/status"], _ALL_WRITES
            )
        ],
        {
            "evidence about a GPU is the controllers' to write: every condition but "
            f"{KUBELET_AGREES}": (
                f"{by_controllers} || object == null || "
                "variables.evidence == variables.evidenceBefore"
            ),
            "a device plugin writes the status of leases and nothing else": plugins(
                "request.operation == 'UPDATE' && has(request.subResource) && "
                "request.subResource == 'status'"
            ),
            "a device plugin writes the leases of its own node only": plugins(
                f"has({extra}) && '{NODE_CLAIM}' in {extra} && "
                f"{extra}['{NODE_CLAIM}'] == [object.spec.node]"
            ),
            f"a device plugin writes holder.allocated and the condition {KUBELET_AGREES} of a lease, "
            "and nothing else": plugins(" && ".join(unchanged)),
        },
        variables={
            "byPlugin": _is(accounts, Program.DEVICE_PLUGIN),
            "now": known("object"),
            "before": known("oldObject"),
            "holder": part("variables.now", "holder", "{}"),
            "holderBefore": part("variables.before", "holder", "{}"),
            "conditions": part("variables.now", "conditions", "[]"),
            "conditionsBefore": part("variables.before", "conditions", "[]"),
            "evidence": f"variables.conditions.filter(c, c.type != '{KUBELET_AGREES}')",
            "evidenceBefore": f"variables.conditionsBefore.filter(c, c.type != '{KUBELET_AGREES}')",
        },
    )


NAMES = tuple(policies(Accounts()))
"""Of all policies and of their bindings."""
