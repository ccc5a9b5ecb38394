"""Rules about what must not go by the way: protected partitions, things with state, the control plane."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from pydantic import Field

from gpuclusters.policy.rule import Parameters
from gpuclusters.policy.stack import DYNAMIC, Stack, Subject, Violation

STATEFUL = {
    f"{DYNAMIC}TenancyPolicy": "a tenant",
    f"{DYNAMIC}Rke2Tokens": "the cluster's tokens",
    "kubernetes:core/v1:Namespace": "a namespace",
    "kubernetes:core/v1:PersistentVolume": "a volume",
    "kubernetes:core/v1:PersistentVolumeClaim": "a volume's claim",
    "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition": "a definition with all its objects",
    "gcp:compute/disk:Disk": "a disk",
    "gcp:compute/regionDisk:RegionDisk": "a disk",
    "gcp:storage/bucket:Bucket": "a bucket",
}
"""What cannot be made again as it was."""

_SERVER = re.compile(r"(^|[-_])(server|control-?plane|master|etcd)s?([-_]|\d|$)")


class ProtectionParameters(Parameters):
    """Where partitions have to be protected."""

    stacks: tuple[str, ...] = Field(
        ("prod", "prod-*", "*-prod", "production"),
        description="Patterns of the names of stacks that the rule looks at; `*` is any text.",
    )


def unprotected_partitions(subject: Subject, parameters: ProtectionParameters) -> Iterator[str]:
    """Partitions that any change may take away, in a stack that matters."""
    if subject.type != f"{DYNAMIC}FabricPartitions" or subject.protect:
        return
    if any(fnmatchcase(subject.stack, pattern) for pattern in parameters.stacks):
        yield "the partitions of a board are not protected: any change that removes them goes through"


def stateful_delete(stack: Stack, _parameters: Parameters) -> Iterator[Violation]:
    """What is deleted and cannot be made again."""
    for subject in stack.subjects:
        if subject.deleted and subject.type in STATEFUL:
            yield Violation(
                subject, f"{STATEFUL[subject.type]} is deleted, with what only it holds"
            )


def spot_servers(subject: Subject, _parameters: Parameters) -> Iterator[str]:
    """A machine of the control plane that can be taken away."""
    if subject.type not in ("gcp:compute/instance:Instance", f"{DYNAMIC}GcpMachine"):
        return
    scheduling = subject.props.get("scheduling")
    spot = subject.props.get("provisioning") == "spot" or (
        isinstance(scheduling, Mapping)
        and (scheduling.get("preemptible") is True or scheduling.get("provisioningModel") == "SPOT")
    )
    labels = subject.props.get("labels")
    role = str(labels.get("role", "")) if isinstance(labels, Mapping) else ""
    names = (subject.name, str(subject.props.get("name") or ""), role)
    if spot and any(_SERVER.search(name) for name in names):
        yield "a machine of the control plane can be taken away at any time (spot)"
