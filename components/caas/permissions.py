"""What each program in the cluster may do, and nothing more.

No role here writes pods, quotas or policies in the whole cluster: `TENANT` holds what a program does in a
tenant's namespace, and the Tenancy controller binds it in each of them. What roles cannot say is in
`gpuclusters.tenancy.program_admission`. Tenants have none of this: they reach the cluster through the API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.tenancy.programs import TENANTS_PROGRAMS, Program, tenant_role

_GET = ("get",)
_FOLLOW = ("list", "watch")
_READ = (*_GET, *_FOLLOW)
_OURS = "gpu-clusters.dev"
_CILIUM = "cilium.io"
_RBAC = "rbac.authorization.k8s.io"


def _rule(
    group: str, resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()
) -> Mapping[str, Sequence[str]]:
    rule = {"api_groups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resource_names": list(names)} if names else rule


_EVENTS = _rule("events.k8s.io", ["events"], ["create"])

CLUSTER: Mapping[Program, Any] = {
    Program.CONTROLLERS: [
        # `patch` is for the finalizer; what a Tenancy says is not the controllers' to change.
        _rule(_OURS, ["tenancies"], [*_READ, "patch"]),
        _rule(_OURS, ["tenancies/status"], ["patch"]),
        _rule(_OURS, ["gpuleases"], [*_READ, "create"]),
        _rule(_OURS, ["gpuleases/status"], ["update"]),
        # A tenant's namespace has to be made before anything can be bound in it.
        _rule("", ["namespaces"], [*_READ, "create", "patch", "delete"]),
        _rule(_RBAC, ["rolebindings"], [*_READ, "create", "patch", "delete"]),
        _rule(_RBAC, ["clusterroles"], ["bind"], [tenant_role(one) for one in TENANTS_PROGRAMS]),
        # All tenants' objects in one watch for each kind.
        _rule("", ["resourcequotas", "limitranges", "serviceaccounts", "pods"], _READ),
        _rule(_CILIUM, ["ciliumnetworkpolicies", "ciliumclusterwidenetworkpolicies"], _READ),
        _rule(
            "admissionregistration.k8s.io",
            ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
            _READ,
        ),
        _rule("", ["nodes"], _READ),
        _rule("node.k8s.io", ["runtimeclasses"], _READ),
        _EVENTS,
    ],
    Program.API: [
        _rule(_OURS, ["tenancies", "gpuleases"], _FOLLOW),
        # All tenants' objects in one watch for each kind.
        _rule("", ["pods", "resourcequotas", "persistentvolumeclaims"], _FOLLOW),
        # Which machines are out of service; the API tells their number, not their names.
        _rule("", ["nodes"], _FOLLOW),
    ],
    Program.DEVICE_PLUGIN: [
        _rule(_OURS, ["gpuleases"], _FOLLOW),
        _rule(_OURS, ["gpuleases/status"], ["update"]),
        _EVENTS,
    ],
}
"""Rules of each program's ClusterRole, bound in the whole cluster."""

TENANT: Mapping[Program, Any] = {
    Program.CONTROLLERS: [
        _rule("", ["resourcequotas", "limitranges"], ["create", "patch", "delete"]),
        # `create`: the namespace may be quicker than the account that Kubernetes makes in it.
        _rule("", ["serviceaccounts"], ["create", "patch"]),
        _rule(_CILIUM, ["ciliumnetworkpolicies"], ["create", "patch", "delete"]),
        # Pods wait for their lease; `create` is for dry runs that prove what is refused.
        _rule("", ["pods"], ["create", "patch", "delete"]),
    ],
    Program.API: [
        _rule("", ["pods"], ["get", "create", "delete"]),
        _rule("", ["pods/log"], _GET),
        _rule("", ["events"], ["list"]),
    ],
}
"""Rules of the ClusterRoles that the Tenancy controller binds in each tenant's namespace."""

OWN_NAMESPACE: Mapping[Program, Any] = {
    Program.CONTROLLERS: [
        _rule("coordination.k8s.io", ["leases"], ["get", "create", "update", "patch"]),
    ],
    # Its own namespace is what it asks for to see whether the cluster answers.
    Program.API: [_rule("", ["namespaces"], _GET)],
}
"""Rules of each program's Role in its own namespace."""
