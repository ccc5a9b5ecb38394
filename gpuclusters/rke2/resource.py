"""`Rke2Node`: a host in its cluster. `Rke2Tokens`: what hosts join the cluster with."""

import secrets

import pulumi
from pulumi.dynamic import CheckFailure, CheckResult, CreateResult

from gpuclusters.providers import properties
from gpuclusters.providers.reconciling import ConvergingProvider, GeneratedSecret, Properties
from gpuclusters.providers.resource import ConvergingResource, Resource
from gpuclusters.rke2 import releases
from gpuclusters.rke2.model import Rke2NodeInputs

TOKEN_BYTES = 32


class Rke2NodeProvider(ConvergingProvider[Rke2NodeInputs]):
    """Keeps one host in its cluster; another release or configuration is an update in place."""

    model = Rke2NodeInputs
    identity = frozenset({"connection.host", "cluster", "node_name", "role"})
    asked_through = "control"
    sensitive = frozenset({"token", "agent_token"})
    kept_by = "gpuclusters.rke2.host:Rke2Capability.on"

    def check(self, olds: Properties, news: Properties) -> CheckResult:
        """Validate, and refuse a release that must not follow the one before; pure."""
        result = super().check(olds, news)
        old, new = olds.get("version"), news.get("version")
        try:
            problem = releases.step_problem(
                releases.parse_version(str(old)), releases.parse_version(str(new))
            )
        except ValueError:
            problem = None  # the first time, not known yet, or refused by the validation already
        failures = [*(result.failures or [])]
        if problem is not None:
            failures += properties.told([CheckFailure("version", problem)])
        return CheckResult(result.inputs, failures)


class Rke2Node(ConvergingResource, module="gpu", name="Rke2Node"):
    """A host that is a server or an agent of an RKE2 cluster."""

    provider = Rke2NodeProvider
    secret_outputs = ("kubeconfig",)
    joined: pulumi.Output[bool]
    """Whether it runs with its present configuration and was Ready with it."""
    installed_version: pulumi.Output[str]
    certificate_expires: pulumi.Output[str]
    """When the first of its certificates ends, as UTC; a start of RKE2 within 90 days of it renews them."""
    kubeconfig: pulumi.Output[str]
    """Admin kubeconfig with the registration address; of the first server alone, else empty. Secret."""


class Rke2TokensProvider(GeneratedSecret):
    """Makes two random texts, once.

    They are never made anew: the server token opens the cluster's own secrets and every etcd snapshot, so
    that a lost token is a lost backup.
    """

    owner = "cluster"

    def create(self, props: Properties) -> CreateResult:
        """Make them; no host is touched, so nothing is lost if this is interrupted."""
        cluster = str(props["cluster"])
        made = {role: secrets.token_hex(TOKEN_BYTES) for role in ("server", "agent")}
        return CreateResult(f"{cluster}/tokens", {"cluster": cluster, **made})


class Rke2Tokens(Resource, module="gpu", name="Rke2Tokens"):
    """Server and agent token of a cluster. Both secret."""

    secret_outputs = ("server", "agent")
    server: pulumi.Output[str]
    """Lets a server join, and is the passphrase of the cluster's bootstrap data and snapshots."""
    agent: pulumi.Output[str]

    def __init__(
        self, name: str, *, cluster: str, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, {"cluster": cluster, "server": None, "agent": None}, opts)
