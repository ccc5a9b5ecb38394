"""The tokens of one RKE2 cluster, made once and kept as secrets of the stack."""

from __future__ import annotations

import secrets
from typing import Any

import pulumi
from pulumi.dynamic import (
    CheckResult,
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)

BYTES = 32


class Rke2TokensProvider(ResourceProvider):
    """Makes two random texts, once.

    They are never made anew: the server token opens the cluster's own secrets and every etcd snapshot, so
    that a lost token is a lost backup.
    """

    serialize_as_secret_always = False

    def check(self, _olds: dict[str, Any], news: dict[str, Any]) -> CheckResult:
        """Nothing to check."""
        return CheckResult(news, [])

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Another cluster has other tokens."""
        other = olds.get("cluster") != news.get("cluster")
        return DiffResult(
            changes=other,
            replaces=["cluster"] if other else [],
            stables=[],
            delete_before_replace=False,
        )

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Make them; no host is touched, so nothing is lost if this is interrupted."""
        cluster = str(props["cluster"])
        return CreateResult(
            f"{cluster}/tokens",
            {
                "cluster": cluster,
                "server": secrets.token_hex(BYTES),
                "agent": secrets.token_hex(BYTES),
            },
        )

    def update(self, _id: str, olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Nothing changes in place."""
        return UpdateResult({k: v for k, v in olds.items() if k != "__provider"})

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """They live in the state alone."""
        return ReadResult(id_, {k: v for k, v in props.items() if k != "__provider"})

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Forgotten with the state."""


class Rke2Tokens(Resource, module="gpu", name="Rke2Tokens"):
    """Server and agent token of a cluster. Both secret."""

    server: pulumi.Output[str]
    """Lets a server join, and is the passphrase of the cluster's bootstrap data and snapshots."""
    agent: pulumi.Output[str]
    """Lets an agent join and nothing else."""

    def __init__(
        self, name: str, *, cluster: str, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        secret = pulumi.ResourceOptions(additional_secret_outputs=["server", "agent"])
        super().__init__(
            Rke2TokensProvider(),
            name,
            {"cluster": cluster, "server": None, "agent": None},
            pulumi.ResourceOptions.merge(opts, secret),
        )
