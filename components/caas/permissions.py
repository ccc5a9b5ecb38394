"""What each program in the cluster may do, and nothing more.

Tenants have none of this: they reach the cluster through the API alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.domain.program_accounts import Program

Rules = Sequence[Mapping[str, Sequence[str]]]

_READ = ("get", "list", "watch")
_OURS = "gpu-clusters.dev"


def _rule(
    group: str, resources: Sequence[str], verbs: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    return {"api_groups": [group], "resources": list(resources), "verbs": list(verbs)}


_EVENTS = _rule("events.k8s.io", ["events"], ["create", "patch", "update"])

CLUSTER: Mapping[Program, Any] = {
    Program.CONTROLLERS: [
        _rule(_OURS, ["tenancies"], [*_READ, "patch", "update"]),
        _rule(_OURS, ["gpuleases"], [*_READ, "create", "patch", "update", "delete"]),
        _rule(_OURS, ["tenancies/status", "gpuleases/status"], ["get", "patch", "update"]),
        _rule(_OURS, ["tenancies/finalizers"], ["update"]),
        # What a tenant is kept in.
        _rule(
            "",
            ["namespaces", "resourcequotas", "limitranges"],
            [*_READ, "create", "patch", "update", "delete"],
        ),
        # `create`: the namespace may be quicker than the account that Kubernetes makes in it.
        _rule("", ["serviceaccounts"], [*_READ, "create", "patch", "update"]),
        _rule(
            "cilium.io",
            ["ciliumnetworkpolicies"],
            [*_READ, "create", "patch", "update", "delete"],
        ),
        _rule(
            "cilium.io",
            ["ciliumclusterwidenetworkpolicies", "ciliumendpoints", "ciliumnodes"],
            _READ,
        ),
        _rule(
            "admissionregistration.k8s.io",
            ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
            _READ,
        ),
        # Pods wait for their lease; `create` is for dry runs that prove what is refused.
        _rule("", ["pods"], [*_READ, "create", "patch", "update", "delete"]),
        _rule("", ["nodes"], _READ),
        _rule("node.k8s.io", ["runtimeclasses"], _READ),
        _rule("apiextensions.k8s.io", ["customresourcedefinitions"], _READ),
        _rule("", ["events"], ["create", "patch"]),
        _EVENTS,
    ],
    Program.API: [
        _rule(_OURS, ["tenancies", "gpuleases"], _READ),
        _rule("", ["pods"], [*_READ, "create", "delete"]),
        _rule("", ["pods/log"], ["get"]),
        _rule("", ["events", "resourcequotas", "persistentvolumeclaims"], _READ),
        # Which machines are out of service; the API tells their number, not their names.
        _rule("", ["nodes"], _READ),
        _rule("events.k8s.io", ["events"], _READ),
    ],
    Program.DEVICE_PLUGIN: [
        _rule(_OURS, ["gpuleases"], _READ),
        _rule(_OURS, ["gpuleases/status"], ["get", "patch", "update"]),
        _EVENTS,
    ],
}
"""Rules of each program's ClusterRole."""

OWN_NAMESPACE: Mapping[Program, Any] = {
    Program.CONTROLLERS: [
        _rule("coordination.k8s.io", ["leases"], ["get", "create", "update", "patch"]),
    ],
    # Its own namespace is what it asks for to see whether the cluster answers.
    Program.API: [_rule("", ["namespaces"], ["get"])],
}
"""Rules of each program's Role in its own namespace."""
