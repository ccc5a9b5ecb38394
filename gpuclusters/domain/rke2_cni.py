"""The CNIs that RKE2 brings beside Cilium: what is told to their charts before the first server starts.

Sources: RKE2's networking documentation (HelmChartConfig `rke2-canal`, `rke2-calico`, `rke2-flannel`) and the
values of these charts. The CNI of a running cluster cannot change.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from gpuclusters.domain.rke2 import MANIFESTS
from gpuclusters.domain.rke2_cilium import chart_config


class Cni(StrEnum):
    """Who connects the pods."""

    CANAL = "canal"
    CALICO = "calico"
    CILIUM = "cilium"
    FLANNEL = "flannel"

    @property
    def enforces_policies(self) -> bool:
        """Whether network policies close anything."""
        return self is not Cni.FLANNEL

    @property
    def images(self) -> str:
        """The archive of a release with its images, for networks without a registry."""
        return f"rke2-images-{self}.linux-amd64.tar.zst"


def values(cni: Cni, *, mtu: int | None = None, wireguard: bool = False) -> dict[str, Any]:
    """Values of the chart of a CNI other than Cilium; empty where its defaults stand.

    Raises:
        ValueError: the chart cannot do this.
    """
    if cni is Cni.CANAL:
        chosen: dict[str, Any] = {}
        if wireguard:
            chosen["flannel"] = {"backend": "wireguard"}
        if mtu is not None:
            chosen["calico"] = {"vethuMTU": mtu}
        return chosen
    if wireguard:
        raise ValueError(f"{cni} is not told to encrypt by this program")
    if cni is Cni.CALICO:
        return {"installation": {"calicoNetwork": {"mtu": mtu}}} if mtu is not None else {}
    if mtu is not None:
        raise ValueError(f"the MTU of {cni} is not set by this program")
    return {}


def manifest(cni: Cni, chosen: Mapping[str, Any]) -> dict[str, str]:
    """The file that a server reads beside the chart, by path; none where defaults stand."""
    if not chosen:
        return {}
    return {f"{MANIFESTS}/rke2-{cni}-config.yaml": chart_config(f"rke2-{cni}", chosen)}
