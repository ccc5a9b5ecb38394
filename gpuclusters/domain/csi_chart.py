"""The chart `csi-driver-nfs`: the values that this program gives it.

Source: kubernetes-csi/csi-driver-nfs, `charts/v4.13.5/csi-driver-nfs/values.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuclusters.domain.tenant_volume import CSI_DRIVER

REPOSITORY: Final = "https://raw.githubusercontent.com/kubernetes-csi/csi-driver-nfs/master/charts"
CHART: Final = "csi-driver-nfs"
RELEASE: Final = "csi-driver-nfs"
NAMESPACE: Final = "kube-system"


def values(*, node_selector: Mapping[str, str], kubelet_root: str) -> dict[str, Any]:
    """A driver that mounts what is declared and makes nothing by itself."""
    return {
        "driver": {"name": CSI_DRIVER},
        # An inline volume would let a pod name any server and any folder; the policy would let the kubelet
        # change the owner of every file of a shared folder to the group of one pod.
        "feature": {"enableInlineVolume": False, "enableFSGroupPolicy": False},
        "controller": {"enableSnapshotter": False},
        "storageClass": {"create": False},
        "kubeletDir": kubelet_root,
        "node": {"nodeSelector": dict(node_selector)},
    }
