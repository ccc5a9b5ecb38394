"""The operands: what each is called, what it waits for, and its DaemonSet as the policy wants it.

Names, labels and init containers after NVIDIA/gpu-operator v26.7.0, `assets/state-*/` and
`controllers/state_manager.go`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lab.gpu_operator.real_nodes import as_real
from lab.kubelet.node import PLAYED_BY

PLAYER: Final = "gpu-operator"
"""Value of the annotation that leaves a pod to this stand-in."""
DEPLOY: Final = "nvidia.com/gpu.deploy."
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Operand:
    name: str
    """Of the DaemonSet, and of the label `app` of its pods."""
    state: str
    """What the operator's messages call it."""
    section: str
    """Its part of the ClusterPolicy."""
    label: str
    """`nvidia.com/gpu.deploy.<label>` chooses its nodes."""
    container: str
    waits_for: tuple[str, ...] = ("toolkit-validation",)
    """Its init containers."""
    part_of: str = ""
    """A further label of its pods, `app.kubernetes.io/part-of`, which some have."""

    @property
    def labels(self) -> dict[str, str]:
        """By which its DaemonSet chooses its pods."""
        more = {"app.kubernetes.io/part-of": self.part_of} if self.part_of else {}
        return {"app": self.name} | more


DRIVER: Final = Operand(
    "nvidia-driver-daemonset", "state-driver", "driver", "driver", "nvidia-driver-ctr",
    ("k8s-driver-manager",),
)  # fmt: skip
TOOLKIT: Final = Operand(
    "nvidia-container-toolkit-daemonset", "state-container-toolkit", "toolkit",
    "container-toolkit", "nvidia-container-toolkit-ctr", ("driver-validation",),
)  # fmt: skip
VALIDATOR: Final = Operand(
    "nvidia-operator-validator", "state-operator-validation", "validator", "operator-validator",
    "nvidia-operator-validator",
    ("driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation"),
    "gpu-operator",
)  # fmt: skip
PLUGIN: Final = Operand(
    "nvidia-device-plugin-daemonset", "state-device-plugin", "devicePlugin", "device-plugin",
    "nvidia-device-plugin",
)  # fmt: skip
MIG_MANAGER: Final = Operand(
    "nvidia-mig-manager", "state-mig-manager", "migManager", "mig-manager", "nvidia-mig-manager"
)
EXPORTER: Final = Operand(
    "nvidia-dcgm-exporter", "state-dcgm-exporter", "dcgmExporter", "dcgm-exporter",
    "nvidia-dcgm-exporter",
)  # fmt: skip
OPERANDS: Final = (
    DRIVER,
    TOOLKIT,
    VALIDATOR,
    PLUGIN,
    Operand("nvidia-dcgm", "state-dcgm", "dcgm", "dcgm", "nvidia-dcgm-ctr"),
    EXPORTER,
    Operand(
        "gpu-feature-discovery",
        "gpu-feature-discovery",
        "gfd",
        "gpu-feature-discovery",
        "gpu-feature-discovery",
        part_of="nvidia-gpu",
    ),
    MIG_MANAGER,
)


def wanted(policy: Object) -> tuple[Operand, ...]:
    """The operands that a policy asks for; the validator is always there.

    One whose section is missing is not asked for: what the definition did not know was pruned, and the
    operator calls itself ready all the same (edgelesssys/contrast#2599).
    """
    spec = policy.get("spec") or {}
    return tuple(
        operand
        for operand in OPERANDS
        if operand is VALIDATOR or (spec.get(operand.section) or {}).get("enabled")
    )


def image(operand: Operand, policy: Object) -> str:
    """The image of an operand, as the policy says it; a driver's has the operating system behind it."""
    section = (policy.get("spec") or {}).get(operand.section) or {}
    version = str(section.get("version", "latest"))
    if operand is DRIVER:
        version += "-ubuntu24.04"
    return f"{section.get('repository', '')}/{section.get('image', operand.name)}:{version}"


def daemon_set(
    operand: Operand, policy: Object, namespace: str, *, real: bool = False
) -> dict[str, Any]:
    """Its DaemonSet; `real`: kubelets of its own run its pods on some node."""
    spec = policy.get("spec") or {}
    common = spec.get("daemonsets") or {}
    section = spec.get(operand.section) or {}
    labels = operand.labels
    shown = image(operand, policy)
    container: dict[str, Any] = {"name": operand.container, "image": shown}
    if section.get("env"):
        container["env"] = section["env"]
    if config := (section.get("config") or {}).get("name"):
        container["envFrom"] = [{"configMapRef": {"name": config, "optional": True}}]
    template = {
        "metadata": {
            "labels": labels,
            "annotations": {**(common.get("annotations") or {}), PLAYED_BY: PLAYER},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "nodeSelector": {DEPLOY + operand.label: "true"},
            "priorityClassName": common.get("priorityClassName", "system-node-critical"),
            "tolerations": list(common.get("tolerations") or ()),
            "initContainers": [
                {"name": name, "image": image(VALIDATOR, policy)} for name in operand.waits_for
            ],
            "containers": [container],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": operand.name,
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [owner(policy)],
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": _strategy(operand, common),
            "template": as_real(template, operand.name) if real else template,
        },
    }


def owner(policy: Object) -> dict[str, Any]:
    """The policy as owner: what it owns goes with it."""
    metadata = policy["metadata"]
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _strategy(operand: Operand, common: Object) -> dict[str, Any]:
    # "The driver Daemonset is always set with OnDelete to avoid unintended disruptions" (values.yaml).
    if operand is DRIVER or common.get("updateStrategy") == "OnDelete":
        return {"type": "OnDelete"}
    most = (common.get("rollingUpdate") or {}).get("maxUnavailable", "1")
    unavailable = int(most) if str(most).isdecimal() else str(most)
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable}}
