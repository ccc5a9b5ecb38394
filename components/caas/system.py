"""Where the cluster's own programs live: for each its namespace, settings, account, and what it may do."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, Secret, ServiceAccount
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding

from components.caas.tenancy import bound
from components.component import Component, Told
from components.kubernetes_objects import PART_OF, after, pod_security
from gpuclusters.tenancy import admission as admission_policy
from gpuclusters.tenancy.on_demand import OnDemand
from gpuclusters.tenancy.programs import TENANTS_PROGRAMS, Accounts, Program, tenant_role
from gpuclusters.tenancy.resource import OnDemandTenancies

RULES: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("rbac.yaml").read_text(encoding="utf-8")
)
"""By where they are bound (`cluster`, `tenant`, `own-namespace`) and program."""
SETTINGS_KEY = "settings.yaml"


@dataclass(frozen=True, slots=True)
class Home:
    namespace: pulumi.Output[str]
    settings: pulumi.Output[str]
    """Name of the ConfigMap."""
    account: pulumi.Output[str]
    """Name of the service account."""


class System(Component, module="caas"):
    """Owns namespaces, settings, secrets, service accounts, and what each account may do and may not."""

    accounts: Accounts
    settings: pulumi.Input[str]
    """The file that `caas.settings` reads."""
    secrets: Mapping[str, pulumi.Input[str]]
    """Files that only the controllers see."""
    on_demand: OnDemand | None = None
    """Which tenancies the API may make."""

    homes: Mapping[Program, Home] = field(init=False)
    settings_digest: pulumi.Output[str] = field(init=False)
    """Changes with the settings and the secrets; pods carry it, so that they are replaced when it does."""
    secret: pulumi.Output[str] = field(init=False)
    """Name of the Secret, in the controllers' namespace."""

    def declare(self) -> Told:
        name, child = self._name, self.child
        self.homes = {program: self._home(program) for program in Program}
        home = self.homes[Program.CONTROLLERS].namespace
        self.secret = Secret(
            f"{name}-secrets",
            metadata={"name": "controllers", "namespace": home},
            string_data=dict(self.secrets),
            opts=child,
        ).metadata.name
        # A digest of a secret is no secret: it only says that the secret is another one.
        self.settings_digest = pulumi.Output.unsecret(
            pulumi.Output.all(settings=self.settings, secrets=dict(self.secrets)).apply(_digest)
        )
        bounds = [
            bound(f"{name}-{policy}", policy, spec, admission_policy.program_binding(policy), self)
            for policy, spec in admission_policy.program_policies(
                self.accounts, self.on_demand
            ).items()
        ]
        for program in TENANTS_PROGRAMS:
            ClusterRole(
                f"{name}-{program}-tenant-role",
                metadata={"name": tenant_role(program)},
                rules=RULES["tenant"][program],
                opts=child,
            )
        # No account may do anything before it is bounded.
        for program in Program:
            self._grant(program, bounds)
        return {"namespace": self.homes[Program.API].namespace}

    def _home(self, program: Program) -> Home:
        name, child = f"{self._name}-{program}", self.child
        # The device plugin alone has to reach the host: the kubelet's sockets.
        level = "privileged" if program is Program.DEVICE_PLUGIN else "restricted"
        own: Any = {"name": self.accounts.namespace(program), "labels": pod_security(level)}
        namespace = Namespace(f"{name}-namespace", metadata=own, opts=child).metadata.name
        settings = ConfigMap(
            f"{name}-settings",
            metadata={"name": "settings", "namespace": namespace},
            data={SETTINGS_KEY: self.settings},
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
        account = account_of(self.accounts, program)
        local = {"name": program.value, "namespace": self.homes[program].namespace}
        whole = {"name": f"gpu-clusters-{program}"}
        kinds: Any = (
            ("", ClusterRole, ClusterRoleBinding, whole, RULES["cluster"], bounds),
            ("local-", Role, RoleBinding, local, RULES["own-namespace"], ()),
        )
        for part, role, binding, metadata, rules, before in kinds:
            name = f"{self._name}-{program}-{part}"
            if program in rules:
                made = role(f"{name}role", metadata=metadata, rules=rules[program], opts=self.child)
                binding(
                    f"{name}binding",
                    metadata=metadata,
                    role_ref=reference(made),
                    subjects=[account],
                    opts=after(*before, opts=self.child),
                )


class TenanciesOnDemand(Component, module="caas"):
    """Lets the API make tenancies, and owns those that it made: they go before what isolates tenants does."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    accounts: Accounts
    declared: Sequence[str]
    """Tenants of the stack, whose tenancies are not touched."""

    def declare(self) -> None:
        made = OnDemandTenancies(
            self._name,
            cluster=self.cluster,
            kubeconfig=self.kubeconfig,
            declared=list(self.declared),
            opts=self.child,
        )
        metadata: Any = {"name": f"gpu-clusters-{Program.API}-on-demand"}
        rules = RULES["on-demand"][Program.API]
        role = ClusterRole(f"{self._name}-role", metadata=metadata, rules=rules, opts=self.child)
        ClusterRoleBinding(
            f"{self._name}-binding",
            metadata=metadata,
            role_ref=reference(role),
            subjects=[account_of(self.accounts, Program.API)],
            # Before they are removed nobody may make more.
            opts=after(made, opts=self.child),
        )


def account_of(accounts: Accounts, program: Program) -> Any:
    """A program as the subject of a binding."""
    namespace = accounts.namespace(program)
    return {"kind": "ServiceAccount", "name": program.value, "namespace": namespace}


def reference(role: ClusterRole | Role) -> Any:
    """A role as a binding names it."""
    group, kind = "rbac.authorization.k8s.io", type(role).__name__
    return {"api_group": group, "kind": kind, "name": role.metadata.name}


def _digest(known: Any) -> str:
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]
