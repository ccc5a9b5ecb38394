"""One host of a Usernetes cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import CheckFailure, CheckResult, DiffResult
from pydantic import ValidationError

from gpuclusters.domain import usernetes_cluster
from gpuclusters.domain.usernetes_node import UsernetesNodeInputs
from gpuclusters.domain.usernetes_node_refusals import release_problem
from gpuclusters.providers import edge
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.usernetes_control import SshNodeControl
    from gpuclusters.adapters.usernetes_node import SshNodeHost
    from gpuclusters.domain.usernetes_cluster import ClusterNode
    from gpuclusters.domain.usernetes_node_live import LiveNode
    from gpuclusters.domain.usernetes_node_wait import Site


class UsernetesNodeProvider(KeptProvider[UsernetesNodeInputs]):
    """Keeps one host in its cluster; another image is an update in place, another number a new node."""

    model = UsernetesNodeInputs
    changes_machine = True
    identity = frozenset({"connection.host", "account", "cluster", "role", "node_name", "number"})

    def check(self, olds: Properties, news: Properties) -> CheckResult:
        """Validate, and refuse what cannot be put under the volumes of a control plane; pure."""
        result = super().check(olds, news)
        try:
            before, wanted = (
                UsernetesNodeInputs.model_validate(edge.inputs_of(UsernetesNodeInputs, bag))
                for bag in (olds, news)
            )
        except ValidationError:
            return result  # the first time, not known yet, or refused by the validation already
        problem = release_problem(before, wanted)
        if problem is None:
            return result
        failures = [*(result.failures or []), CheckFailure("source", problem)]
        return CheckResult(result.inputs, failures)

    def diff(self, id_: str, olds: Properties, news: Properties) -> DiffResult:
        """As ever, but whom to ask is no part of the host: how the control plane is reached may change."""
        return super().diff(id_, olds, {**news, "control": olds.get("control")})

    def ensure(self, inputs: UsernetesNodeInputs, before: Properties) -> Properties:
        """Bring sources, start the node, set up GPUs, join; or only what of it is missing."""
        from gpuclusters.domain.reconcile_usernetes_node import ensure_node

        site = self._site(inputs)
        live = ensure_node(site, before=before)
        return self._outputs(inputs, live, site.control.node(inputs.node_name))

    def observe(self, inputs: UsernetesNodeInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The host as it is; None if nothing of a node is on it."""
        site = self._site(inputs)
        live = site.host.inspect()
        # A daemon that does not answer says nothing about what it keeps.
        if live.docker == "ok" and not live.is_begun:
            return None
        node = None
        if live.docker == "ok" and site.control.is_ready():
            node = site.control.node(inputs.node_name)
        return Live(self._outputs(inputs, live, node), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether the last look found something that is not as it was left."""
        return bool(outputs.get("drift"))

    def remove(self, inputs: UsernetesNodeInputs, before: Properties) -> None:  # noqa: ARG002
        """Drain, delete the Node, `make down-v`."""
        from gpuclusters.domain.reconcile_usernetes_node import remove_node

        remove_node(self._site(inputs))

    def _site(self, inputs: UsernetesNodeInputs) -> Site:
        from gpuclusters.adapters.here import StderrReporter, SystemClock
        from gpuclusters.domain.usernetes_node_wait import Site

        return Site(
            inputs, self._host(inputs), self._control(inputs), SystemClock(), StderrReporter()
        )

    def _host(self, inputs: UsernetesNodeInputs) -> SshNodeHost:
        from gpuclusters.adapters.usernetes_node import SshNodeHost

        return SshNodeHost(host(inputs.connection, self.ssh_key), inputs.account)

    def _control(self, inputs: UsernetesNodeInputs) -> SshNodeControl:
        from gpuclusters.adapters.usernetes_control import SshNodeControl

        asked = inputs.control or inputs
        return SshNodeControl(host(asked.connection, self.ssh_key), asked.account)

    def _outputs(
        self, inputs: UsernetesNodeInputs, live: LiveNode, node: ClusterNode | None
    ) -> Properties:
        from gpuclusters.adapters.usernetes_node import first_expiry
        from gpuclusters.domain import usernetes_node_state

        outputs = usernetes_node_state.outputs(inputs, live, node)
        outputs["certificate_expires"] = first_expiry(live.certificates)
        outputs["kubeconfig"] = ""
        if inputs.is_control_plane and outputs["joined"]:
            outputs["kubeconfig"] = usernetes_cluster.kubeconfig(
                self._host(inputs).kubeconfig(),
                inputs.api,
                name=inputs.cluster,
                node_name=inputs.node_name,
                host_ip=str(outputs["address"]),
            )
        return outputs


class UsernetesNode(Resource, module="gpu", name="UsernetesNode"):
    """A host that is the control plane or a worker of a Usernetes cluster."""

    joined: pulumi.Output[bool]
    """Whether its container runs and it was Ready in its cluster."""
    member_of: pulumi.Output[str]
    """Id of the cluster that it is in: a digest of its certificate authority. Empty before it has joined."""
    address: pulumi.Output[str]
    """At which the other hosts reach it."""
    kubernetes: pulumi.Output[str]
    """Release that the node runs."""
    gpu_uuids: pulumi.Output[Sequence[str]]
    """GPUs that its pods can be given."""
    certificate_expires: pulumi.Output[str]
    """When the first of its certificates ends, as UTC."""
    kubeconfig: pulumi.Output[str]
    """Admin kubeconfig; of the control plane alone, else empty. Secret."""
    drift: pulumi.Output[Sequence[str]]
    """What a refresh found that is not as it was left."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        account: str,
        cluster: str,
        role: str,
        node_name: str,
        number: int,
        source: pulumi.Input[Mapping[str, Any]],
        container_toolkit: str,
        overlay: Mapping[str, str],
        network: Mapping[str, Any],
        gpus: int,
        control: pulumi.Input[Mapping[str, Any]] | None = None,
        cluster_id: pulumi.Input[str] | None = None,
        host_ip: pulumi.Input[str] | None = None,
        slirp4netns: bool = True,
        schedule_on_control_plane: bool = True,
        api: Mapping[str, Any] | None = None,
        join_token_hours: float = 1,
        join_timeout_seconds: float = 900,
        build_timeout_seconds: float = 3600,
        drain_timeout_seconds: float = 600,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a host's place in a cluster.

        Args:
            name: logical name.
            connection: how the host is reached.
            account: whose rootless Docker it is.
            cluster: name of the cluster; part of the id.
            role: `control-plane` or `worker`.
            node_name: name of the node.
            number: of the node, 1 to 254; decides its own network.
            source: tag, location, digest and Kubernetes release of Usernetes.
            container_toolkit: version in the node image.
            overlay: our files, by name.
            network: ranges and ports of the cluster.
            gpus: how many the host has.
            control: whom a worker joins.
            cluster_id: of the cluster that a worker is to be in.
            host_ip: at which the other hosts reach it; found there if it is None.
            slirp4netns: whether that is the rootless network.
            schedule_on_control_plane: whether pods may run on the control plane.
            api: from where the API is reached; changes the kubeconfig alone.
            join_token_hours: longest life of a join token, which ends when the worker has joined.
            join_timeout_seconds: patience until the node is Ready.
            build_timeout_seconds: patience for building the node image.
            drain_timeout_seconds: patience for pods to leave; 0 leaves them.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "connection": connection,
            "account": account,
            "cluster": cluster,
            "role": role,
            "node_name": node_name,
            "number": number,
            "source": source,
            "container_toolkit": container_toolkit,
            "overlay": overlay,
            "network": network,
            "gpus": gpus,
            "slirp4netns": slirp4netns,
            "schedule_on_control_plane": schedule_on_control_plane,
            "join_token_hours": join_token_hours,
            "join_timeout_seconds": join_timeout_seconds,
            "build_timeout_seconds": build_timeout_seconds,
            "drain_timeout_seconds": drain_timeout_seconds,
            "joined": None,
            "member_of": None,
            "address": None,
            "kubernetes": None,
            "gpu_uuids": None,
            "certificate_expires": None,
            "kubeconfig": None,
            "drift": None,
        }
        stated = {"control": control, "cluster_id": cluster_id, "host_ip": host_ip, "api": api}
        properties |= {key: value for key, value in stated.items() if value is not None}
        secret = pulumi.ResourceOptions(additional_secret_outputs=["kubeconfig"])
        super().__init__(name, properties, pulumi.ResourceOptions.merge(opts, secret))
