"""`Rke2Node`: a host in its cluster. `Rke2Tokens`: what hosts join the cluster with."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pulumi
from pulumi.dynamic import CheckFailure, CheckResult, CreateResult

from gpuclusters.core.converge import converge
from gpuclusters.host import node
from gpuclusters.providers import properties
from gpuclusters.providers.converging import ConvergingProvider, ConvergingResource
from gpuclusters.providers.reconciling import GeneratedSecret, Properties
from gpuclusters.providers.reconciling import host as reach
from gpuclusters.providers.resource import Resource
from gpuclusters.rke2 import decide, releases
from gpuclusters.rke2.model import LiveNode, Rke2NodeInputs

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost
    from gpuclusters.rke2.host import Rke2Capability

TOKEN_BYTES = 32


class Rke2NodeProvider(ConvergingProvider[Rke2NodeInputs, LiveNode]):
    """Keeps one host in its cluster; another release or configuration is an update in place."""

    model = Rke2NodeInputs
    identity = frozenset({"connection.host", "cluster", "node_name", "role"})
    asked_through = "control"
    sensitive = frozenset({"token", "agent_token"})

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

    def ensure(self, inputs: Rke2NodeInputs, before: Properties) -> Properties:
        """Install, configure, join; or only what of it is missing."""
        from gpuclusters.core.converge import StderrReporter

        capability = self._made(inputs, reach(inputs.connection, self.ssh_key), before)
        same = bool(before) and self._parsed(before) == inputs
        live = converge(capability, StderrReporter(), made_before=same)
        return self.kept(inputs, capability, live)

    def capability(
        self,
        inputs: Rke2NodeInputs,
        before: Properties,  # noqa: ARG002 (the cluster is asked by `ensure` alone)
        host: SshHost,
    ) -> Rke2Capability:
        """The host alone."""
        return self._made(inputs, host, None)

    def outputs(self, inputs: Rke2NodeInputs, live: LiveNode) -> Properties:
        """Release, certificate, kubeconfig."""
        host = live.host
        return {
            "joined": bool(host.applied) and decide.is_active(host, inputs.role),
            "installed_version": host.version,
            "certificate_expires": host.expires,
            "kubeconfig": self._kubeconfig(inputs, live),
        }

    def _kubeconfig(self, inputs: Rke2NodeInputs, live: LiveNode) -> str:
        if not live.kubeconfig:
            return ""
        return node.readdressed(
            live.kubeconfig, name=inputs.cluster, host=inputs.registration_address
        )

    def is_absent(self, inputs: Rke2NodeInputs, live: LiveNode) -> bool:  # noqa: ARG002
        """Whether RKE2 is not on it."""
        return not live.host.version and not live.host.owner

    def live_inputs(self, inputs: Rke2NodeInputs, live: LiveNode) -> Properties:  # noqa: ARG002
        """The release."""
        return {"version": live.host.version} if live.host.release() else {}

    def _made(
        self, inputs: Rke2NodeInputs, host: SshHost, before: Properties | None
    ) -> Rke2Capability:
        from gpuclusters.core.converge import StderrReporter, SystemClock
        from gpuclusters.rke2.host import Rke2Capability, SshRke2Control, SshRke2Host

        others = [SshRke2Control(reach(one, self.ssh_key)) for one in inputs.control]
        clock, reporter = SystemClock(), StderrReporter()
        return Rke2Capability(inputs, SshRke2Host(host), others, clock, reporter, before=before)


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
