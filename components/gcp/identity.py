"""The account that the machines of one cluster act as, with the few roles that they need.

Owns: the account and its roles in the project. Deliberately does not own: keys of it, which nobody needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import projects, serviceaccount


@dataclass(frozen=True, kw_only=True)
class GcpIdentityArgs:
    """What the account needs to know."""

    project: str
    account_id: str
    """Its name before the @: 6 to 30 characters."""
    cluster: str
    roles: Sequence[str]
    """Roles in the project."""


class GcpIdentity(pulumi.ComponentResource):
    """Account `<name>-account` and one grant for each role."""

    email: pulumi.Output[str]
    """The account's address."""
    ready: Sequence[pulumi.Resource]
    """To depend on: machines can act as it."""

    def __init__(
        self, name: str, args: GcpIdentityArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:gcp:GcpIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = serviceaccount.Account(
            f"{name}-account",
            project=args.project,
            account_id=args.account_id,
            display_name=f"Machines of the cluster {args.cluster}",
            opts=child,
        )
        grants = [
            projects.IAMMember(
                f"{name}-{role.removeprefix('roles/').replace('.', '-')}",
                project=args.project,
                role=role,
                member=account.member,
                opts=child,
            )
            for role in args.roles
        ]
        self.email = account.email
        self.ready = (account, *grants)
        self.register_outputs({"email": self.email})
