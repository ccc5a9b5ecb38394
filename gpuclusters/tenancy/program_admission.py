"""What the accounts of the cluster's own programs may do, as ValidatingAdmissionPolicies.

Roles say what kinds of objects an account may write. They cannot say in which namespaces, of which shape and
with which values: whoever takes an account could make a namespace without Pod Security, label kube-system as
a tenant's, or bind itself a role there. These policies close that. Every rule is about requests of the
programs' accounts, except that the evidence in a lease is for nobody but the controllers to write.

Sources: Kubernetes' documentation of ValidatingAdmissionPolicy; KEP-4193, which adds the name of its node to
the user info of a pod's token.
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
from gpuclusters.device_plugin.decide import KUBELET_AGREES
from gpuclusters.domain.custom_resource import GROUP, VERSION
from gpuclusters.domain.naming import RESERVED_NAMESPACES, RESERVED_PREFIX
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import MANAGED_LABEL, MANAGER
from gpuclusters.tenancy.program_accounts import TENANTS_PROGRAMS, Accounts, Program, tenant_role

NODE_CLAIM = "authentication.kubernetes.io/node-name"
"""Key in the user info of a pod's token: the node on which the pod runs."""
_ENFORCE = "pod-security.kubernetes.io/enforce"

Rule = Mapping[str, str]


def policies(accounts: Accounts) -> Mapping[str, dict[str, Any]]:
    """The spec of each policy by its name.

    Args:
        accounts: of the programs.
    """
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
    users = ", ".join(f"'{accounts.user(program)}'" for program in programs)
    return f"request.userInfo.username in [{users}]"


def _policy(
    group: str,
    version: str,
    resources: Sequence[str],
    operations: Sequence[str],
    rules: Sequence[Rule],
    *,
    by: str = "",
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [group],
                    "apiVersions": [version],
                    "operations": list(operations),
                    "resources": list(resources),
                }
            ]
        },
        "validations": [{**rule, "reason": "Forbidden"} for rule in rules],
    }
    if by:
        spec["matchConditions"] = [{"name": "by-a-program", "expression": by}]
    if variables:
        spec["variables"] = [{"name": n, "expression": e} for n, e in variables.items()]
    return spec


_WRITES = ("CREATE", "UPDATE", "DELETE")


def _namespaces(accounts: Accounts) -> dict[str, Any]:
    own = sorted({*RESERVED_NAMESPACES, *accounts.namespaces})
    reserved = "[" + ", ".join(f"'{name}'" for name in own) + "]"
    return _policy(
        "",
        "v1",
        ["namespaces", "namespaces/status", "namespaces/finalize"],
        _WRITES,
        [
            {
                "expression": _is(accounts, Program.CONTROLLERS),
                "message": "namespaces are the controllers' to write",
            },
            {
                "expression": f"!variables.name.startsWith('{RESERVED_PREFIX}') && "
                f"!(variables.name in {reserved})",
                "message": "this namespace is the cluster's own",
            },
            {
                "expression": "object == null ? variables.before != '' : variables.tenant != ''",
                "message": f"the controllers write tenants' namespaces only (label {TENANT_LABEL}), and "
                "never take the label away",
            },
            {
                # One that the controllers made and whose label somebody took away is still the tenant's.
                "expression": "request.operation != 'UPDATE' || variables.before == variables.tenant || "
                f"(variables.before == '' && {_label('oldObject', MANAGED_LABEL)} == '{MANAGER}')",
                "message": "a namespace that is there does not become a tenant's",
            },
            {
                "expression": f"object == null || {_label('object', _ENFORCE)} in "
                "['restricted', 'baseline']",
                "message": f"a tenant's namespace has the label {_ENFORCE}: restricted or baseline",
            },
        ],
        by=_is(accounts, *Program),
        variables={
            "name": "object == null ? request.name : object.metadata.name",
            "tenant": _label("object", TENANT_LABEL),
            "before": _label("oldObject", TENANT_LABEL),
        },
    )


def _places(accounts: Accounts) -> dict[str, Any]:
    spec = _policy(
        "",
        "v1",
        ["pods", "pods/*", "resourcequotas", "limitranges", "serviceaccounts", "serviceaccounts/*"],
        _WRITES,
        [
            {
                "expression": f"{_label('namespaceObject', TENANT_LABEL)} != ''",
                "message": "the cluster's programs write in tenants' namespaces only "
                f"(label {TENANT_LABEL})",
            }
        ],
        by=_is(accounts, *Program),
    )
    spec["matchConstraints"]["resourceRules"] += [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": list(_WRITES),
            "resources": resources,
        }
        for group, resources in (
            ("rbac.authorization.k8s.io", ["rolebindings", "roles"]),
            ("cilium.io", ["ciliumnetworkpolicies", "ciliumnetworkpolicies/*"]),
        )
    ]
    return spec


def _roles(accounts: Accounts) -> dict[str, Any]:
    each = " || ".join(
        f"(object.roleRef.name == '{tenant_role(program)}' && "
        f"s.namespace == '{accounts.namespace(program)}' && s.name == '{program}')"
        for program in TENANTS_PROGRAMS
    )
    return _policy(
        "rbac.authorization.k8s.io",
        "v1",
        ["rolebindings"],
        ["CREATE", "UPDATE"],
        [
            {
                "expression": "object.roleRef.kind == 'ClusterRole' && has(object.subjects) && "
                "object.subjects.size() == 1 && object.subjects.all(s, "
                f"s.kind == 'ServiceAccount' && ({each}))",
                "message": "a program binds the roles of programs in tenants' namespaces, to those "
                "programs, and nothing else",
            }
        ],
        by=_is(accounts, *Program),
    )


def _pods(accounts: Accounts) -> dict[str, Any]:
    by_api = _is(accounts, Program.API)
    gates = "object.spec.schedulingGates"
    return _policy(
        "",
        "v1",
        ["pods"],
        ["CREATE", "DELETE"],
        [
            {
                "expression": f"{by_api} || {_is(accounts, Program.CONTROLLERS)}",
                "message": "pods are not this program's to write",
            },
            {
                "expression": f"{by_api} || object == null || "
                "(has(request.dryRun) && request.dryRun)",
                "message": "the controllers try pods and make none",
            },
            {
                "expression": f"!variables.made || ({_label('object', CONTAINER_LABEL)} == "
                "object.metadata.name && "
                f"{_label('object', TENANT_LABEL)} == {_label('namespaceObject', TENANT_LABEL)})",
                "message": "the API makes containers: a pod is named after its container and carries the "
                "tenant of its namespace",
            },
            {
                "expression": "!variables.made || object.metadata.labels.all(k, k in "
                f"['{CONTAINER_LABEL}', '{TENANT_LABEL}', '{NAME_LABEL}'] || "
                f"k.startsWith('{USER_LABEL_PREFIX}'))",
                "message": "labels of a container are the API's own, or begin with "
                f"{USER_LABEL_PREFIX}",
            },
            {
                "expression": "!variables.made || (!has(object.metadata.ownerReferences) && "
                "!has(object.metadata.finalizers))",
                "message": "a container has neither owners nor finalizers",
            },
            {
                "expression": f"!variables.made || (has({gates}) && {gates}.exists(g, "
                f"g.name == '{LEASE_GATE}'))",
                "message": f"a container is made with the scheduling gate {LEASE_GATE}",
            },
            {
                "expression": "!variables.made || (has(object.spec.automountServiceAccountToken) && "
                "object.spec.automountServiceAccountToken == false)",
                "message": "a container gets no token: automountServiceAccountToken is false",
            },
            {
                "expression": f"!({by_api}) || object != null || "
                f"{_label('oldObject', CONTAINER_LABEL)} != ''",
                "message": f"the API deletes containers only (label {CONTAINER_LABEL})",
            },
        ],
        by=_is(accounts, *Program),
        variables={"made": f"{by_api} && request.operation == 'CREATE'"},
    )


def _tenancies(accounts: Accounts) -> dict[str, Any]:
    return _policy(
        GROUP,
        VERSION,
        [TENANCY.plural],
        _WRITES,
        [
            {
                "expression": "request.operation == 'UPDATE' && object.spec == oldObject.spec",
                "message": "what a tenant is given is not for the cluster's programs to say",
            }
        ],
        by=_is(accounts, *Program),
    )


def _leases(accounts: Accounts) -> dict[str, Any]:
    def known(of: str) -> str:
        return f"{of} == null || !has({of}.status) ? {{}} : dyn({of}.status)"

    def same(one: str, other: str, free: Sequence[str]) -> str:
        keys = "[" + ", ".join(f"'{key}'" for key in free) + "]"
        return f"{one}.all(k, k in {keys} || (k in {other} && {one}[k] == {other}[k]))"

    def part(of: str, key: str, empty: str) -> str:
        return f"'{key}' in {of} ? {of}.{key} : {empty}"

    def plugins(expression: str) -> str:
        return f"!variables.byPlugin || ({expression})"

    claim = f"'{NODE_CLAIM}' in request.userInfo.extra"
    return _policy(
        GROUP,
        VERSION,
        [GPU_LEASE.plural, f"{GPU_LEASE.plural}/status"],
        _WRITES,
        [
            {
                "expression": f"{_is(accounts, Program.CONTROLLERS)} || object == null || "
                "variables.evidence == variables.evidenceBefore",
                "message": "evidence about a GPU is the controllers' to write: every condition but "
                f"{KUBELET_AGREES}",
            },
            {
                "expression": plugins(
                    "request.operation == 'UPDATE' && has(request.subResource) && "
                    "request.subResource == 'status'"
                ),
                "message": "a device plugin writes the status of leases and nothing else",
            },
            {
                "expression": plugins(
                    f"has(request.userInfo.extra) && {claim} && "
                    f"request.userInfo.extra['{NODE_CLAIM}'] == [object.spec.node]"
                ),
                "message": "a device plugin writes the leases of its own node only",
            },
            {
                "expression": plugins(
                    " && ".join(
                        (
                            same("variables.now", "variables.before", ("conditions", "holder")),
                            same("variables.before", "variables.now", ("conditions", "holder")),
                            same("variables.holder", "variables.holderBefore", ("allocated",)),
                            same("variables.holderBefore", "variables.holder", ("allocated",)),
                        )
                    )
                ),
                "message": "a device plugin writes holder.allocated and the condition "
                f"{KUBELET_AGREES} of a lease, and nothing else",
            },
        ],
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
