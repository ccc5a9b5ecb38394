"""`cni` of an `rke2` cluster: who connects the pods. A running cluster keeps its CNI."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from gpuclusters.config.base import Flag, Section
from gpuclusters.config.rke2 import CiliumSettings

Mtu = Annotated[int, Strict(), Field(ge=1280, le=9216)]


class Canal(Section):
    """Flannel's VXLAN with Calico's policies, RKE2's own default. The hosts' firewalld must be off."""

    kind: Literal["canal"]
    """Name of the CNI."""
    wireguard: Flag = False
    """Whether traffic between nodes is encrypted, by flannel's backend wireguard."""
    mtu: Mtu | None = None
    """MTU of the pods' network; found by itself if it is not stated."""


class Calico(Section):
    """Calico by its operator, with VXLAN."""

    kind: Literal["calico"]
    """Name of the CNI."""
    mtu: Mtu | None = None
    """MTU of the pods' network; found by itself if it is not stated."""


class Flannel(Section):
    """Flannel alone: no network policies, also not those of `profile: cis`."""

    kind: Literal["flannel"]
    """Name of the CNI."""


class CiliumCni(CiliumSettings):
    """Cilium, in place of kube-proxy or beside it."""

    kind: Literal["cilium"]
    """Name of the CNI."""
    kube_proxy_replacement: Flag = True
    """kubeProxyReplacement: services without kube-proxy, which is not started then."""
    dns_proxy: Flag = True
    """Whether Cilium's DNS proxy runs; rules by host name need it."""


Cni = Annotated[Canal | Calico | Flannel | CiliumCni, Field(discriminator="kind")]
