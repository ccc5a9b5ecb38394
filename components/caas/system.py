"""Where the cluster's own programs live: for each its namespace, settings, account, and what it may do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, Secret, ServiceAccount
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding

from components.caas import permissions
from components.caas.tenancy import bound
from components.kubernetes_objects import PART_OF, after, pod_security
from gpuclusters.tenancy import program_admission
from gpuclusters.tenancy.programs import TENANTS_PROGRAMS, Accounts, Program, tenant_role

SETTINGS_KEY = "settings.yaml"


@dataclass(frozen=True, kw_only=True)
class SystemArgs:
    """What the programs are told."""

    accounts: Accounts
    settings: pulumi.Input[str]
    """The file that `caas.settings` reads."""
    secrets: Mapping[str, pulumi.Input[str]]
    """Files that only the controllers see."""


@dataclass(frozen=True, slots=True)
class Home:
    """What is there for one program before it starts."""

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
        self._name = name
        self._args = args
        child = pulumi.ResourceOptions(parent=self)
        self.homes = {program: self._home(program) for program in Program}
        secrets = Secret(
            f"{name}-secrets",
            metadata={
                "name": "controllers",
                "namespace": self.homes[Program.CONTROLLERS].namespace,
            },
            string_data=dict(args.secrets),
            opts=child,
        )
        self.secrets = secrets.metadata.name
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
                rules=permissions.TENANT[program],
                opts=child,
            )
        # No account may do anything before it is bounded.
        for program in Program:
            self._grant(program, bounds)
        self.register_outputs({"namespace": self.homes[Program.API].namespace})

    def _home(self, program: Program) -> Home:
        child = pulumi.ResourceOptions(parent=self)
        # The device plugin alone has to reach the host: the kubelet's sockets.
        level = "privileged" if program is Program.DEVICE_PLUGIN else "restricted"
        namespace = Namespace(
            f"{self._name}-{program}-namespace",
            metadata={
                "name": self._args.accounts.namespace(program),
                "labels": pod_security(level),
            },
            opts=child,
        ).metadata.name
        settings = ConfigMap(
            f"{self._name}-{program}-settings",
            metadata={"name": "settings", "namespace": namespace},
            data={SETTINGS_KEY: self._args.settings},
            opts=child,
        )
        account = ServiceAccount(
            f"{self._name}-{program}-account",
            # Labels also because what has a name alone has no field that says whose it is.
            metadata={"name": program.value, "namespace": namespace, "labels": PART_OF},
            opts=child,
        )
        return Home(namespace, settings.metadata.name, account.metadata.name)

    def _grant(self, program: Program, bounds: Sequence[pulumi.Resource]) -> None:
        child = pulumi.ResourceOptions(parent=self)
        name = f"{self._name}-{program}"
        namespace = self._args.accounts.namespace(program)
        account: Any = {"kind": "ServiceAccount", "name": program.value, "namespace": namespace}
        full_name = f"gpu-clusters-{program}"
        role = ClusterRole(
            f"{name}-role",
            metadata={"name": full_name},
            rules=permissions.CLUSTER[program],
            opts=child,
        )
        ClusterRoleBinding(
            f"{name}-binding",
            metadata={"name": full_name},
            role_ref=_reference("ClusterRole", role.metadata.name),
            subjects=[account],
            opts=after(*bounds, opts=child),
        )
        if own := permissions.OWN_NAMESPACE.get(program):
            metadata: Any = {"name": program.value, "namespace": self.homes[program].namespace}
            local = Role(f"{name}-local-role", metadata=metadata, rules=own, opts=child)
            RoleBinding(
                f"{name}-local-binding",
                metadata=metadata,
                role_ref=_reference("Role", local.metadata.name),
                subjects=[account],
                opts=child,
            )


def _reference(kind: str, name: pulumi.Input[str]) -> Any:
    return {"api_group": "rbac.authorization.k8s.io", "kind": kind, "name": name}


def _digest(known: Any) -> str:
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]
