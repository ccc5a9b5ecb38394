"""What stands for Kata's virtual machines on nodes of the lab, in the words of all outputs."""

from collections.abc import Mapping

from lab.nodes.choice import Kind

HANDLER = "kata-qemu-nvidia-gpu"
"""Handler of the runtime class, and the name of both."""
ANNOTATION = f"gpu-clusters.dev/{HANDLER}"
"""On every node of the lab: what the runtime class starts there."""

_STARTS = {
    Kind.REAL: "emulated with runc, no VM starts",
    Kind.SIMULATED: "its pods are played, no container and no VM starts",
}


def stand_in(kind: Kind) -> str:
    """What the runtime class starts on nodes of this kind."""
    return f"stand-in: {_STARTS[kind]}"


def sentence(kind: Kind) -> str:
    return f"RuntimeClass {HANDLER} is a {stand_in(kind)}"


def node_annotations(kind: Kind) -> Mapping[str, str]:
    """What `kubectl describe node` shows of it."""
    return {ANNOTATION: stand_in(kind)}
