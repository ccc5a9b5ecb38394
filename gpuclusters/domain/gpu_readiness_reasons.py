"""What a message of the GPU stack means: from the text that pods and events show to cause and remedy.

Collected from issues of NVIDIA/gpu-operator, NVIDIA/nvidia-container-toolkit and rancher/rke2, and from the
documentation of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Meaning:
    """One message and what is behind it."""

    pattern: re.Pattern[str]
    text: str


def _meaning(pattern: str, text: str) -> Meaning:
    return Meaning(re.compile(pattern, re.IGNORECASE), text)


MEANINGS: Final = (
    _meaning(
        r'no runtime for \\?"nvidia\\?" is configured',
        "RKE2 has not restarted since the toolkit was installed, or the driver is not ready (nouveau?): "
        "look at the toolkit's pod of that node, then `systemctl restart rke2-agent` there",
    ),
    _meaning(
        r"error signal\w+ containerd.*no such file",
        "toolkit.env lacks CONTAINERD_SOCKET=/run/k3s/containerd/containerd.sock "
        "(NVIDIA/gpu-operator#406)",
    ),
    _meaning(
        r"unresolvable CDI devices management\.nvidia\.com/gpu=",
        "a toolkit of 1.17 or older with the runtime class nvidia-cdi "
        "(NVIDIA/nvidia-container-toolkit#1239)",
    ),
    _meaning(
        r"system not yet initialized",
        "the fabric manager does not run or is of another version than the driver",
    ),
    _meaning(
        r"corrupted infoROM|infoROM is corrupted|exit (code|status) 14\b",
        "a GPU with a corrupt infoROM: nvidia-smi answers 14, and the validator takes that for a failure",
    ),
    _meaning(
        r"default runtime nvidia was not found",
        "`default-runtime: nvidia` is set on a node where the toolkit is not installed yet: take it out",
    ),
    _meaning(
        r"too many open files",
        "the node's inotify limits are too low: set fs.inotify.max_user_instances=8192",
    ),
    _meaning(
        r"580\.\w+ Legacy drivers|will ignore this GPU",
        "the GPU is older than this driver branch serves: Volta and Pascal need branch 580 or older",
    ),
    _meaning(
        r"GPU System Processor \(GSP\)",
        "open kernel modules on a GPU before Turing: set driver.kernelModuleType to proprietary",
    ),
    _meaning(
        r"Could not resolve Linux kernel version|no matching kernel|linux-headers.*(not found|unable)",
        "no kernel headers for the running kernel: boot the kernel that is installed, use precompiled "
        "modules, or install the driver on the host",
    ),
    _meaning(
        r"Key was rejected by service",
        "Secure Boot refuses an unsigned kernel module: use signed modules, or enrol the key",
    ),
    _meaning(
        r"ErrImagePull|ImagePullBackOff|Back-off pulling image|failed to pull",
        "the image cannot be had: check repository, tag and pull secret of that operand, and the way to "
        "the registry or its mirror in registries.yaml",
    ),
    _meaning(
        r"violates PodSecurity",
        "the namespace does not let privileged pods in: label it "
        "pod-security.kubernetes.io/enforce=privileged",
    ),
    _meaning(
        r"OOMKilled",
        "it needs more memory than its limit: raise the value resources.limits.memory of that part",
    ),
)
"""Messages by what they are recognised by, the most telling first."""


def explain(texts: Iterable[str]) -> str:
    """What these texts mean, the first that is known; empty if none is."""
    said = list(texts)
    for meaning in MEANINGS:
        if any(meaning.pattern.search(text) for text in said):
            return meaning.text
    return ""
