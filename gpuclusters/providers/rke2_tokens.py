"""The tokens of one RKE2 cluster, made once and kept as secrets of the stack."""

from __future__ import annotations

import secrets
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult

from gpuclusters.providers.made_once import MadeOnceProvider
from gpuclusters.providers.resource import Resource

BYTES = 32


class Rke2TokensProvider(MadeOnceProvider):
    """Makes two random texts, once.

    They are never made anew: the server token opens the cluster's own secrets and every etcd snapshot, so
    that a lost token is a lost backup.
    """

    owner = "cluster"

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
            name,
            {"cluster": cluster, "server": None, "agent": None},
            pulumi.ResourceOptions.merge(opts, secret),
        )
