"""One host of an RKE2 cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import CheckFailure, CheckResult, DiffResult

from gpuclusters.domain import reconcile_rke2, rke2, rke2_adoption, rke2_kubeconfig, rke2_state
from gpuclusters.domain.rke2_node import Rke2NodeInputs
from gpuclusters.providers import edge
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.rke2_host import SshRke2Control, SshRke2Host


class Rke2NodeProvider(KeptProvider[Rke2NodeInputs]):
    """Keeps one host in its cluster; another release or configuration is an update in place."""

    model = Rke2NodeInputs
    changes_machine = True
    identity = frozenset({"connection.host", "cluster", "node_name", "role"})
    sensitive = frozenset({"token", "agent_token"})

    def check(self, olds: Properties, news: Properties) -> CheckResult:
        """Validate, and refuse a release that must not follow the one before; pure."""
        result = super().check(olds, news)
        old, new = olds.get("version"), news.get("version")
        try:
            problem = rke2.step_problem(rke2.parse_version(str(old)), rke2.parse_version(str(new)))
        except ValueError:
            problem = None  # the first time, not known yet, or refused by the validation already
        failures = [*(result.failures or [])]
        if problem is not None:
            failures += edge.told([CheckFailure("version", problem)])
        return CheckResult(result.inputs, failures)

    def diff(self, id_: str, olds: Properties, news: Properties) -> DiffResult:
        """As ever, but whom to ask is no part of the host: a server that comes or goes changes no other."""
        return super().diff(id_, olds, {**news, "control": olds.get("control")})

    def ensure(self, inputs: Rke2NodeInputs, before: Properties) -> Properties:
        """Install, configure, join; or only what of it is missing."""
        from gpuclusters.adapters.here import StderrReporter, SystemClock

        reached = self._host(inputs)
        others = self._others(inputs)
        clock = SystemClock()
        control = reached.control() if inputs.first else reconcile_rke2.answering(others, clock)
        live = reconcile_rke2.ensure_node(
            inputs, reached, control, others, clock, StderrReporter(), before=before
        )
        return self._outputs(inputs, reached, live)

    def differences(self, inputs: Rke2NodeInputs) -> Sequence[str]:
        """Of an RKE2 that is there: release, configuration, tokens, files."""
        reached = self._host(inputs)
        live = reached.inspect([*inputs.contents(), rke2.TOKENS])
        documents, token = reached.configuration()
        return [*rke2_adoption.differences(inputs, live, documents, token)]

    def observe(self, inputs: Rke2NodeInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The host as it is; None if RKE2 is not on it."""
        reached = self._host(inputs)
        live = reached.inspect([*inputs.contents(), rke2.TOKENS])
        if not live.version and not live.owner:
            return None
        found = {"version": live.version} if live.release() else {}
        return Live(self._outputs(inputs, reached, live), found)

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether the last look found something that is not as it was left."""
        return bool(outputs.get("drift"))

    def remove(self, inputs: Rke2NodeInputs, before: Properties) -> None:  # noqa: ARG002
        """Drain, delete the node, uninstall."""
        from gpuclusters.adapters.here import SystemClock

        reconcile_rke2.remove_node(inputs, self._host(inputs), self._others(inputs), SystemClock())

    def _outputs(self, inputs: Rke2NodeInputs, reached: SshRke2Host, live: Any) -> Properties:
        from gpuclusters.adapters.here import StderrReporter

        outputs = rke2_state.outputs(inputs, live)
        warning = rke2_state.certificate_warning(inputs, live)
        if warning is not None:
            StderrReporter().note(warning)
        outputs["kubeconfig"] = ""
        if inputs.first and outputs["joined"]:
            outputs["kubeconfig"] = rke2_kubeconfig.readdressed(
                reached.kubeconfig(), inputs.registration_address, name=inputs.cluster
            )
        return outputs

    def _host(self, inputs: Rke2NodeInputs) -> SshRke2Host:
        from gpuclusters.adapters.rke2_host import SshRke2Host

        return SshRke2Host(host(inputs.connection, self.ssh_key))

    def _others(self, inputs: Rke2NodeInputs) -> list[SshRke2Control]:
        from gpuclusters.adapters.rke2_host import SshRke2Control

        return [SshRke2Control(host(one, self.ssh_key)) for one in inputs.control]


class Rke2Node(Resource, module="gpu", name="Rke2Node"):
    """A host that is a server or an agent of an RKE2 cluster."""

    joined: pulumi.Output[bool]
    """Whether it runs with its present configuration and was Ready with it."""
    installed_version: pulumi.Output[str]
    """Release that is installed."""
    certificate_expires: pulumi.Output[str]
    """When the first of its certificates ends, as UTC; a start of RKE2 within 90 days of it renews them."""
    kubeconfig: pulumi.Output[str]
    """Admin kubeconfig with the registration address; of the first server alone, else empty. Secret."""
    drift: pulumi.Output[Sequence[str]]
    """What a refresh found that is not as it was left."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        cluster: pulumi.Input[str],
        node_name: pulumi.Input[str],
        role: pulumi.Input[str],
        registration_address: pulumi.Input[str],
        version: pulumi.Input[str],
        artifacts: pulumi.Input[Mapping[str, Any]],
        config: pulumi.Input[Mapping[str, Any]],
        token: pulumi.Input[str],
        agent_token: pulumi.Input[str] | None = None,
        files: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None,
        labels: pulumi.Input[Mapping[str, str]] | None = None,
        first: bool = False,
        control: pulumi.Input[Sequence[Any]] = (),
        cis: bool = False,
        selinux: bool = False,
        join_timeout_seconds: pulumi.Input[float] = 900,
        drain_timeout_seconds: pulumi.Input[float] = 600,
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a host's place in a cluster.

        Args:
            name: logical name.
            connection: how the host is reached.
            cluster: name of the cluster; part of the id.
            node_name: name of the node.
            role: `server` or `agent`.
            registration_address: fixed address of the servers.
            version: release of RKE2, like `v1.35.7+rke2r1`.
            artifacts: `source`, `location`, `checksum` and `images` of the release.
            config: content of its `config.yaml.d`, without tokens.
            token: what it joins with; on servers the server token. Always kept as a secret.
            agent_token: on servers, what agents join with. Always kept as a secret.
            files: more files by path, without secrets.
            labels: of the node; changed through the API when it is there already.
            first: whether it makes the cluster.
            control: connections of other servers, which are asked about the cluster.
            cis: whether what the CIS profile needs is prepared on the host.
            selinux: whether SELinux is required.
            join_timeout_seconds: patience for one start, images included.
            drain_timeout_seconds: patience for pods to leave before an upgrade or a removal; 0 leaves them.
            adopt: take over an RKE2 that is there already.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "connection": connection,
            "cluster": cluster,
            "node_name": node_name,
            "role": role,
            "registration_address": registration_address,
            "version": version,
            "artifacts": artifacts,
            "config": config,
            "files": files if files is not None else {},
            "labels": labels if labels is not None else {},
            "first": first,
            "control": control,
            "cis": cis,
            "selinux": selinux,
            "token": pulumi.Output.secret(token),
            "join_timeout_seconds": join_timeout_seconds,
            "drain_timeout_seconds": drain_timeout_seconds,
            "adopt": adopt,
            "joined": None,
            "installed_version": None,
            "certificate_expires": None,
            "written": None,
            "kubeconfig": None,
            "drift": None,
        }
        if agent_token is not None:
            properties["agent_token"] = pulumi.Output.secret(agent_token)
        secret = pulumi.ResourceOptions(additional_secret_outputs=["kubeconfig"])
        super().__init__(name, properties, pulumi.ResourceOptions.merge(opts, secret))
