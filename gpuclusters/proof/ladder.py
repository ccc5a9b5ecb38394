"""The ladder of a rootless cluster: nine rungs from the host's driver to a training job over all nodes.

Every rung rests on the one below, so a climb ends at the first that does not hold, and what failed names
its rung, the host or node, what was seen and what to do. Rungs 1 to 4 are asked on the hosts over SSH,
rungs 5 to 9 of the cluster through its API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from gpuclusters.proof.checks import Check, Outcome


class CheckLevel(IntEnum):
    """The rungs, from below."""

    DRIVER = 1
    DOCKER = 2
    CONTAINER = 3
    NODE_CDI = 4
    NODES = 5
    NETWORK = 6
    ALLOCATABLE = 7
    VECTOR_ADD = 8
    TRAINING = 9

    @property
    def level(self) -> str:
        """As checks and evidence name it: `R7`."""
        return f"R{self.value}"


HOST_RUNGS = (CheckLevel.DRIVER, CheckLevel.DOCKER, CheckLevel.CONTAINER, CheckLevel.NODE_CDI)
"""Asked over SSH."""
CLUSTER_RUNGS = tuple(rung for rung in CheckLevel if rung not in HOST_RUNGS)
"""Asked of the API server."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a rung is about."""

    what: str
    """The statement that its checks make."""
    asked: str
    """The command or the object that is read."""
    read: str
    """When the answer holds."""
    remedy: str
    """What to do when it does not, and nothing better is known of the case."""


STEPS: Mapping[CheckLevel, Step] = {
    CheckLevel.DRIVER: Step(
        "the driver shows the GPUs of the host",
        "nvidia-smi -L on the host",
        "it lists as many GPUs as the configuration says",
        "correct the driver on the host: branch 580 or older with NVIDIA's own kernel module for a V100",
    ),
    CheckLevel.DOCKER: Step(
        "Docker of the account is rootless and knows the GPUs",
        "docker info of the account's own daemon",
        "security option rootless; the runtime nvidia, or CDI devices that name exactly the GPUs of the host",
        "run `up` again, which prepares the host's Docker",
    ),
    CheckLevel.CONTAINER: Step(
        "a container of the account sees the GPUs",
        "docker run --rm --network none --device nvidia.com/gpu=all … nvidia-smi -L",
        "it lists the same GPUs as the host",
        "run `up` again, which makes the CDI specification anew and then restarts Docker",
    ),
    CheckLevel.NODE_CDI: Step(
        "the node has a CDI name for every GPU",
        "nvidia-ctk cdi list inside the node's container",
        "nvidia.com/gpu=all and one name by UUID for each GPU of the host: as many names as GPUs and one",
        "run `up` again, or `systemctl restart usernetes-gpus` inside the node",
    ),
    CheckLevel.NODES: Step(
        "the node is Ready and has its external address",
        "the Node objects",
        "every configured node, and no other, is Ready and has an ExternalIP",
        "look at the kubelet inside the node: `docker exec NODE journalctl -u kubelet`",
    ),
    CheckLevel.NETWORK: Step(
        "pods on different nodes find and reach each other",
        "one pod per node of a StatefulSet looks up the others by name and talks to them",
        "every lookup and every exchange works",
        "open 8472/udp between the hosts, keep net.ipv4.conf.*.rp_filter at 0 or 2, and run `up` again, "
        "which synchronises the external addresses",
    ),
    CheckLevel.ALLOCATABLE: Step(
        "the node offers its GPUs",
        "status.allocatable of the Node objects, and the log of the device plugin",
        "nvidia.com/gpu is what the configuration says",
        "read the log of the device plugin on that node",
    ),
    CheckLevel.VECTOR_ADD: Step(
        "a pod with one GPU calculates on it",
        "a Job with NVIDIA's sample vectorAdd on every node",
        'it prints "Test PASSED"',
        "describe the pod; CDI names inside the node and the driver are what it depends on",
    ),
    CheckLevel.TRAINING: Step(
        "the nodes train a model together",
        "an indexed Job with one pod per node and all its GPUs",
        "it succeeds, every rank takes part over the expected backend, and the accuracy is above the floor",
        "its last words are above; run the same with `gpu-clusters verify` and follow the pods' logs",
    ),
}


def passed(rung: CheckLevel, subject: str, said: str, **figures: float) -> Check:
    """A check that holds."""
    return Check(rung.level, subject, STEPS[rung].what, Outcome.PASSED, said, figures)


def failed(rung: CheckLevel, subject: str, said: str, remedy: str = "") -> Check:
    """A check that does not hold, with the way out."""
    way = remedy or STEPS[rung].remedy
    return Check(rung.level, subject, STEPS[rung].what, Outcome.FAILED, f"{said}; {way}")


def not_tried(rung: CheckLevel, said: str, subject: str = "cluster") -> Check:
    """A rung that was not reached."""
    return Check(rung.level, subject, STEPS[rung].what, Outcome.NOT_TRIED, said)


def above(rung: CheckLevel, highest: CheckLevel, said: str) -> Iterator[Check]:
    """The rungs over this one, none of which was tried."""
    for higher in CheckLevel:
        if rung < higher <= highest:
            yield not_tried(higher, said)
