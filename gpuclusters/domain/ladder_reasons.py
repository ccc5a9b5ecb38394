"""What a message of the GPU stack means inside a rootless node: from its text to cause and remedy.

From the experience with Usernetes and V100s on Google Compute Engine, the issues of
rootless-containers/usernetes, NVIDIA/nvidia-container-toolkit, NVIDIA/k8s-device-plugin and moby/moby.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Reason:
    """One message, what is behind it, and what to do."""

    pattern: re.Pattern[str]
    cause: str
    remedy: str


def _reason(pattern: str, cause: str, remedy: str) -> Reason:
    return Reason(re.compile(pattern, re.IGNORECASE), cause, remedy)


_IN_NODE = "run `systemctl restart usernetes-gpus` inside the node, or `up` again"

REASONS: Final = (
    _reason(
        r"unresolvable CDI devices \S*=GPU-",
        "the CDI specification inside the node has no names by UUID, or those of other GPUs",
        f"{_IN_NODE}: it makes the specification with --device-name-strategy=uuid",
    ),
    _reason(
        r"unresolvable CDI devices|could not select device driver \W*cdi",
        "the CDI specification is missing, or the daemon does not see it: its folder was made after the "
        "daemon had started, or Docker is older than 28.2 and features.cdi is off",
        "make the specification, then restart the account's Docker; inside a node " + _IN_NODE,
    ),
    _reason(
        r"bpf_prog_query\(BPF_CGROUP_DEVICE\)",
        "the toolkit's legacy mode wants to set device rules, which no rootless container may",
        "set nvidia-container-runtime.mode to cdi, and leave no-cgroups alone: that fails one level deeper",
    ),
    _reason(
        r"Incompatible strategy detected auto|invalid device discovery strategy|could not load NVML",
        "the plugin found no NVML: nvidia is not the default runtime inside the node, or the node had no CDI "
        "specification when the pod started",
        f"{_IN_NODE}, then delete the plugin's pod on that node; never set the strategy to tegra",
    ),
    _reason(
        r"Failed to initialize NVML: Unknown Error",
        "systemd took the devices away from a running container (a daemon-reload outside of CDI mode)",
        "restart that container, and use CDI mode on the host and inside the node",
    ),
    _reason(
        r"couldn't communicate with the NVIDIA driver|No devices were found",
        "no driver runs for these GPUs: newer than branch 580, or the open kernel module, which do not "
        "know Volta, or a kernel that it was not built for",
        "install branch 580 with the proprietary module, hold the kernel, and reboot",
    ),
    _reason(
        r"Driver/library version mismatch",
        "the driver's packages were upgraded and its module was not loaded anew",
        "reboot the host, and hold the driver's packages",
    ),
    _reason(
        r"no kernel image is available for execution",
        "the program was built without code for this GPU: CUDA 13 and PyTorch's cu128 builds leave Volta out",
        "take an image with CUDA 12.9 or older that has sm_70, such as PyTorch's cu126 builds",
    ),
    _reason(
        r"lchown .*invalid argument",
        "the image has files of a user id above 65535, which the account's subordinate ids do not reach",
        "take another image (kubeflowkatib/pytorch-mnist:v1beta1-45c5727 is one of these), or widen "
        "/etc/subuid and /etc/subgid",
    ),
    _reason(
        r"no FashionMNIST in",
        "the data are not where the configuration says, and they are never downloaded",
        "bake them into the image, or name a volume that holds the four idx files",
    ),
    _reason(
        r"Insufficient nvidia\.com/gpu",
        "no node has so many free GPUs: somebody uses them, or fewer are offered than are asked for",
        "end what uses them, or correct gpus.count",
    ),
    _reason(
        r"untolerated taint.*control-plane",
        "pods may not run on the control plane",
        "set schedule-on-control-plane: true, which takes the taint away",
    ),
    _reason(
        r"untolerated taint.*uninitialized",
        "the node's external address was never synchronised",
        "run `up` again, or `make sync-external-ip` on the control plane",
    ),
    _reason(
        r"bad address|name resolution|Name or service not known|Name does not resolve",
        "pods on other nodes are not reached, the cluster's DNS among them",
        "open 8472/udp between the hosts, set rp_filter to 0 or 2, synchronise the external addresses",
    ),
    _reason(
        r"dial tcp 10\.96\.0\.1:443: i/o timeout",
        "flannel does not reach the API server: Podman with pasta",
        "use slirp4netns, or Docker",
    ),
)


def explain(texts: Iterable[str]) -> Reason | None:
    """The first meaning that is known of any of these texts; None if none is."""
    told = "\n".join(texts)
    return next((reason for reason in REASONS if reason.pattern.search(told)), None)


def remedy(*texts: str) -> str:
    """Cause and remedy in one sentence; empty if nothing is known."""
    known = explain(texts)
    return f"{known.cause}: {known.remedy}" if known else ""
