"""Where the cluster's own programs live: for each its namespace, settings, account, and what it may do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, Secret, ServiceAccount
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding

from components.caas.tenancy import bound
from components.kubernetes_objects import PART_OF, after, pod_security
from gpuclusters.tenancy import program_admission
from gpuclusters.tenancy.programs import TENANTS_PROGRAMS, Accounts, Program, tenant_role

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
        _rule("coordination.k8s.io", ["leases"], ["get", "create", "update", "patch"])
    ],
    # Its own namespace is what it asks for to see whether the cluster answers.
    Program.API: [_rule("", ["namespaces"], _GET)],
}
"""Rules of each program's Role in its own namespace."""


SETTINGS_KEY = "settings.yaml"


@dataclass(frozen=True, kw_only=True)
class SystemArgs:
    accounts: Accounts
    settings: pulumi.Input[str]
    """The file that `caas.settings` reads."""
    secrets: Mapping[str, pulumi.Input[str]]
    """Files that only the controllers see."""


@dataclass(frozen=True, slots=True)
class Home:
    namespace: pulumi.Output[str]
    settings: pulumi.Output[str]
    """Name of the ConfigMap."""
    account: pulumi.Output[str]
    """Name of the service account."""


class System(pulumi.ComponentResource):
    """Owns namespaces, settings, secrets, service accounts, and what each account may do and may not."""

    homes: Mapping[Program, Home]
    settings_digest: pulumi.Output[str]
    """Changes with the settings and the secrets; pods carry it, so that they are replaced when it does."""
    secrets: pulumi.Output[str]
    """Name of the Secret, in the controllers' namespace."""

    def __init__(
        self, name: str, args: SystemArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:System", name, None, opts)
        self._name, self._args = name, args
        child = self._child = pulumi.ResourceOptions(parent=self)
        self.homes = {program: self._home(program) for program in Program}
        home = self.homes[Program.CONTROLLERS].namespace
        self.secrets = Secret(
            f"{name}-secrets",
            metadata={"name": "controllers", "namespace": home},
            string_data=dict(args.secrets),
            opts=child,
        ).metadata.name
        # A digest of a secret is no secret: it only says that the secret is another one.
        self.settings_digest = pulumi.Output.unsecret(
            pulumi.Output.all(settings=args.settings, secrets=dict(args.secrets)).apply(_digest)
        )
        bounds = [
            bound(f"{name}-{policy}", policy, spec, program_admission.binding(policy), self)
            for policy, spec in program_admission.policies(args.accounts).items()
        ]
        for program in TENANTS_PROGRAMS:
            ClusterRole(
                f"{name}-{program}-tenant-role",
                metadata={"name": tenant_role(program)},
                rules=TENANT[program],
                opts=child,
            )
        # No account may do anything before it is bounded.
        for program in Program:
            self._grant(program, bounds)
        self.register_outputs({"namespace": self.homes[Program.API].namespace})

    def _home(self, program: Program) -> Home:
        name, child = f"{self._name}-{program}", self._child
        # The device plugin alone has to reach the host: the kubelet's sockets.
        level = "privileged" if program is Program.DEVICE_PLUGIN else "restricted"
        own: Any = {"name": self._args.accounts.namespace(program), "labels": pod_security(level)}
        namespace = Namespace(f"{name}-namespace", metadata=own, opts=child).metadata.name
        settings = ConfigMap(
            f"{name}-settings",
            metadata={"name": "settings", "namespace": namespace},
            data={SETTINGS_KEY: self._args.settings},
            opts=child,
        )
        account = ServiceAccount(
            f"{name}-account",
            # Labels also because what has a name alone has no field that says whose it is.
            metadata={"name": program.value, "namespace": namespace, "labels": PART_OF},
            opts=child,
        )
        return Home(namespace, settings.metadata.name, account.metadata.name)

    def _grant(self, program: Program, bounds: Sequence[pulumi.Resource]) -> None:
        namespace = self._args.accounts.namespace(program)
        account = {"kind": "ServiceAccount", "name": program.value, "namespace": namespace}
        local = {"name": program.value, "namespace": self.homes[program].namespace}
        kinds: Any = (
            (
                "",
                ClusterRole,
                ClusterRoleBinding,
                {"name": f"gpu-clusters-{program}"},
                CLUSTER,
                bounds,
            ),
            ("local-", Role, RoleBinding, local, OWN_NAMESPACE, ()),
        )
        for part, role, binding, metadata, rules, before in kinds:
            name = f"{self._name}-{program}-{part}"
            if program in rules:
                made = role(
                    f"{name}role", metadata=metadata, rules=rules[program], opts=self._child
                )
                group, kind = "rbac.authorization.k8s.io", role.__name__
                binding(
                    f"{name}binding",
                    metadata=metadata,
                    role_ref={"api_group": group, "kind": kind, "name": made.metadata.name},
                    subjects=[account],
                    opts=after(*before, opts=self._child),
                )


def _digest(known: Any) -> str:
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]
