"""Faults of the node of a Usernetes cluster, by the step that shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lab.hosts.service_vm.fabric_faults import BaseFault


class NodeImageFails(BaseFault):
    """The node image cannot be built."""

    kind: Literal["node-image-fails"] = "node-image-fails"
    why: Literal["wrong-tag", "toolkit-version", "no-egress", "rate-limit", "disk-full"]


class NodeStartFails(BaseFault):
    """The node container cannot be started."""

    kind: Literal["node-start-fails"] = "node-start-fails"
    why: Literal["cdi-unresolvable", "port-taken", "subnet-overlap", "rp-filter", "delegation"]


class NodeGpusFail(BaseFault):
    """What sets up the GPUs in the node does not get where it should."""

    kind: Literal["node-gpus-fail"] = "node-gpus-fail"
    why: Literal["nvml", "index-names", "not-default-runtime", "legacy-mode"]


class NodeJoinFails(BaseFault):
    """kubeadm in the node ends with an error."""

    kind: Literal["node-join-fails"] = "node-join-fails"
    why: Literal["token-expired", "clock-skew", "port-closed", "other-cluster", "kubelet-down"]


class CidrAssignmentFails(BaseFault):
    """The node is not Ready for so long after it has joined, as seen when many join at once."""

    kind: Literal["cidr-assignment-fails"] = "cidr-assignment-fails"
    seconds: float = Field(default=1, ge=0)


class SyncFails(BaseFault):
    """`make sync-external-ip` ends with an error on this control plane."""

    kind: Literal["sync-fails"] = "sync-fails"


class FlannelStartsEarly(BaseFault):
    """flannel on this node starts before it can know the host's address."""

    kind: Literal["flannel-starts-early"] = "flannel-starts-early"


UsernetesFault = Annotated[
    NodeImageFails
    | NodeStartFails
    | NodeGpusFail
    | NodeJoinFails
    | CidrAssignmentFails
    | SyncFails
    | FlannelStartsEarly,
    Field(discriminator="kind"),
]
