"""What runs as a process in pods whose images are not ours: programs of proofs, and images that are known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.kubelet.proof_program import LABEL
from lab.pods.names import VISIBLE
from lab.pods.rootless import ALL, InNode

_PROOFS = ("reach", "training")
"""Labels of pods that mount a Python program of ours, and need the cluster's DNS."""
_KNOWN = {
    "nvcr.io/nvidia/k8s-device-plugin": "lab.usernetes.device_plugin",
    "nvcr.io/nvidia/k8s/cuda-sample": "lab.pods.vector_add",
}


@dataclass(frozen=True, slots=True)
class Program:
    """What is executed for a container; as it stands there by default."""

    before: tuple[str, ...] = ()
    """Words between Python and the container's own arguments."""
    whole: tuple[str, ...] = ()
    """The whole command, where it is the image's."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the image."""


def program(
    pod: Mapping[str, Any], container: Mapping[str, Any], inside: InNode | None
) -> Program | None:
    """What runs for a container of another image; None if nothing does.

    Args:
        pod: whose.
        container: of it.
        inside: what is inside the node; None if it is no rootless one, where no known image runs.
    """
    label = (pod["metadata"].get("labels") or {}).get(LABEL)
    if label in _PROOFS and container.get("command"):
        return Program(before=("-m", "lab.pods.in_pod"))
    name = container["image"].partition("@")[0].rpartition(":")[0]
    if inside is None or name not in _KNOWN:
        return None
    # The variable is in the image: without a device of its own the plugin's pod gets all GPUs.
    own = {VISIBLE: ALL} if name.endswith("device-plugin") else {}
    return Program(whole=("python3", "-m", _KNOWN[name]), environment=own)
