"""`UsernetesNode`: one host of a Usernetes cluster."""

from collections.abc import Sequence

import pulumi
from pulumi.dynamic import CheckFailure, CheckResult
from pydantic import ValidationError

from gpuclusters.providers import properties
from gpuclusters.providers.reconciling import ConvergingProvider, Properties
from gpuclusters.providers.resource import ConvergingResource
from gpuclusters.usernetes.decide import release_problem
from gpuclusters.usernetes.model import UsernetesNodeInputs


class UsernetesNodeProvider(ConvergingProvider[UsernetesNodeInputs]):
    """Keeps one host in its cluster; another image is an update in place, another number a new node."""

    model = UsernetesNodeInputs
    identity = frozenset({"connection.host", "account", "cluster", "role", "node_name", "number"})
    asked_through = "control"
    kept_by = "gpuclusters.usernetes.host:NodeCapability.on"

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

    def ensure(self, inputs: UsernetesNodeInputs, before: Properties) -> Properties:
        """Bring sources, start the node, set up GPUs, join; or only what of it is missing."""
        if inputs.control is not None:
            self.capability(inputs, before).require_answer()
        return super().ensure(inputs, before)


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
