"""`UsernetesNode`: one host of a Usernetes cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pulumi
from pulumi.dynamic import CheckFailure, CheckResult
from pydantic import ValidationError

from gpuclusters.core.converge import StderrReporter, SystemClock
from gpuclusters.providers import properties
from gpuclusters.providers.converging import ConvergingProvider, ConvergingResource
from gpuclusters.providers.reconciling import Properties
from gpuclusters.providers.reconciling import host as reach
from gpuclusters.usernetes import decide
from gpuclusters.usernetes.decide import LivePlace, release_problem
from gpuclusters.usernetes.model import UsernetesNodeInputs

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost
    from gpuclusters.usernetes.host import NodeCapability, SshNodeHost


class UsernetesNodeProvider(ConvergingProvider[UsernetesNodeInputs, LivePlace]):
    """Keeps one host in its cluster; another image is an update in place, another number a new node."""

    model = UsernetesNodeInputs
    identity = frozenset({"connection.host", "account", "cluster", "role", "node_name", "number"})
    asked_through = "control"

    def check(self, olds: Properties, news: Properties) -> CheckResult:
        """Validate, and refuse what cannot be put under the volumes of a control plane; pure."""
        result = super().check(olds, news)
        try:
            before, wanted = (
                UsernetesNodeInputs.model_validate(
                    properties.inputs_of(UsernetesNodeInputs, bag), by_name=True
                )
                for bag in (olds, news)
            )
        except ValidationError:
            return result  # the first time, not known yet, or refused by the validation already
        problem = release_problem(before, wanted)
        if problem is None:
            return result
        failures = [*(result.failures or []), CheckFailure("source", problem)]
        return CheckResult(result.inputs, failures)

    def capability(
        self, inputs: UsernetesNodeInputs, before: Properties, host: SshHost
    ) -> NodeCapability:
        """The node, and the control plane that knows of it."""
        from gpuclusters.usernetes.host import NodeCapability, SshNodeControl

        asked = inputs.control or inputs
        control = SshNodeControl(reach(asked.connection, self.ssh_key), asked.account)
        there, clock, reporter = self._on(inputs, host), SystemClock(), StderrReporter()
        return NodeCapability(inputs, there, control, clock, reporter, known=bool(before))

    def ensure(self, inputs: UsernetesNodeInputs, before: Properties) -> Properties:
        """Bring sources, start the node, set up GPUs, join; or only what of it is missing."""
        if inputs.control is not None:
            host = reach(inputs.connection, self.ssh_key)
            self.capability(inputs, before, host).require_answer()
        return super().ensure(inputs, before)

    def outputs(self, inputs: UsernetesNodeInputs, live: LivePlace) -> Properties:
        """What others need of the node; the kubeconfig of a control plane."""
        from gpuclusters.usernetes.host import first_expiry

        host, node = live.host, live.node
        address = inputs.host_ip or host.host_ip or host.route
        joined = bool(host.joined) and host.joined == host.cluster_id and host.is_running
        text = ""
        if inputs.is_control_plane and joined:
            there = self.capability(inputs, {}, reach(inputs.connection, self.ssh_key))
            names = {"name": inputs.cluster, "node_name": inputs.node_name}
            text = decide.kubeconfig(there.kubeconfig(), inputs.api, **names, host_ip=address)
        return {
            "joined": joined,
            "member_of": host.joined,
            "address": address,
            "kubernetes": node.version if node else "",
            "gpu_uuids": sorted(name for name in host.cdi if name.startswith("GPU-")),
            "certificate_expires": first_expiry(host.certificates),
            "kubeconfig": text,
        }

    def is_absent(self, inputs: UsernetesNodeInputs, live: LivePlace) -> bool:  # noqa: ARG002
        """Whether nothing of a node is there; a daemon that does not answer says nothing of what it keeps."""
        return live.host.docker == "ok" and not live.host.is_begun

    def _on(self, inputs: UsernetesNodeInputs, host: SshHost) -> SshNodeHost:
        from gpuclusters.usernetes.host import SshNodeHost

        return SshNodeHost(host, inputs.account)


class UsernetesNode(ConvergingResource, module="gpu", name="UsernetesNode"):
    """A host that is the control plane or a worker of a Usernetes cluster."""

    provider = UsernetesNodeProvider
    secret_outputs = ("kubeconfig",)
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
