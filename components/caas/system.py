"""Where the cluster's own programs live: a namespace, their settings and secrets, an account for each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, Secret, ServiceAccount
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding

from components.caas import permissions

CONTROLLERS = "controllers"
API = "api"
DEVICE_PLUGIN = "device-plugin"

SETTINGS_KEY = "settings.yaml"
PART = {"app.kubernetes.io/part-of": "gpu-clusters"}


@dataclass(frozen=True, kw_only=True)
class SystemArgs:
    """What the programs are told."""

    namespace: str
    settings: pulumi.Input[str]
    """The file that `caas.settings` reads."""
    secrets: Mapping[str, pulumi.Input[str]]
    """Files that only the controllers see."""


class System(pulumi.ComponentResource):
    """Owns namespace, settings, secrets, service accounts and what each account may do."""

    namespace: pulumi.Output[str]
    settings: pulumi.Output[str]
    """Name of the ConfigMap."""
    settings_digest: pulumi.Output[str]
    """Changes with the settings and the secrets; pods carry it, so that they are replaced when it does."""
    secrets: pulumi.Output[str]
    """Name of the Secret."""
    accounts: Mapping[str, ServiceAccount]
    permissions: list[pulumi.Resource]
    """What must be granted before a program starts."""

    def __init__(
        self, name: str, args: SystemArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:System", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        home = Namespace(
            f"{name}-namespace",
            metadata={
                "name": args.namespace,
                # The device plugin has to reach the kubelet's sockets on the host.
                "labels": {
                    f"pod-security.kubernetes.io/{mode}": "privileged"
                    for mode in ("enforce", "audit", "warn")
                },
            },
            opts=child,
        )
        self.namespace = home.metadata.name
        settings = ConfigMap(
            f"{name}-settings",
            metadata={"name": "settings", "namespace": self.namespace},
            data={SETTINGS_KEY: args.settings},
            opts=child,
        )
        self.settings = settings.metadata.name
        secrets = Secret(
            f"{name}-secrets",
            metadata={"name": "controllers", "namespace": self.namespace},
            string_data=dict(args.secrets),
            opts=child,
        )
        self.secrets = secrets.metadata.name
        # A digest of a secret is no secret: it only says that the secret is another one.
        self.settings_digest = pulumi.Output.unsecret(
            pulumi.Output.all(settings=args.settings, secrets=dict(args.secrets)).apply(_digest)
        )
        self.accounts = {
            program: ServiceAccount(
                f"{name}-{program}-account",
                # Labels also because what has a name alone has no field that says whose it is.
                metadata={"name": program, "namespace": self.namespace, "labels": PART},
                opts=child,
            )
            for program in (CONTROLLERS, API, DEVICE_PLUGIN)
        }
        self.permissions = [
            resource for program in self.accounts for resource in self._grant(name, program, args)
        ]
        self.register_outputs({"namespace": self.namespace})

    def _grant(self, name: str, program: str, args: SystemArgs) -> list[pulumi.Resource]:
        child = pulumi.ResourceOptions(parent=self)
        account: Any = {"kind": "ServiceAccount", "name": program, "namespace": args.namespace}
        full_name = f"gpu-clusters-{program}"
        role = ClusterRole(
            f"{name}-{program}-role",
            metadata={"name": full_name},
            rules=permissions.CLUSTER[program],
            opts=child,
        )
        granted: list[pulumi.Resource] = [
            ClusterRoleBinding(
                f"{name}-{program}-binding",
                metadata={"name": full_name},
                role_ref=_reference("ClusterRole", role.metadata.name),
                subjects=[account],
                opts=child,
            )
        ]
        if own := permissions.OWN_NAMESPACE.get(program):
            local = Role(
                f"{name}-{program}-local-role",
                metadata={"name": program, "namespace": self.namespace},
                rules=own,
                opts=child,
            )
            granted.append(
                RoleBinding(
                    f"{name}-{program}-local-binding",
                    metadata={"name": program, "namespace": self.namespace},
                    role_ref=_reference("Role", local.metadata.name),
                    subjects=[account],
                    opts=child,
                )
            )
        return granted


def _reference(kind: str, name: pulumi.Input[str]) -> Any:
    return {"api_group": "rbac.authorization.k8s.io", "kind": kind, "name": name}


def _digest(known: Any) -> str:
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]
