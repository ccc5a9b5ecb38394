"""What holds for clusters of any type: the lab, the secrets that a stack reads, placeholders. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any

from gpuclusters.config.caas import CaasConfig, GivenCertificate
from gpuclusters.config.fault import finding, show
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kubernetes import LabKubernetes, Rke2Kubernetes
from gpuclusters.config.rke2_cluster import MadeCluster, Rke2Config
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.finding import Finding, Path
from gpuclusters.core.section import Section
from gpuclusters.lease.model import RecyclePolicy

ClusterConfig = CaasConfig | Rke2Config | UsernetesConfig | GkeConfig

SECRET_KEYS = (
    *("kubeconfig", "ssh-private-key", "controller-ssh-private-key", "bmc-password"),
    "api-private-key",
    *("server-token", "agent-token", "registry-credentials", "tenant-registry-credentials"),
)
"""Secrets of all cluster types; which of them a stack needs is told by its section."""

KEY = "lab"
"""Key of the section in a stack file; it is beside those of the cluster types, which share the lab."""


class LabNodes(StrEnum):
    """What the nodes of a lab are."""

    AUTO = "auto"
    REAL = "real"
    SIMULATED = "simulated"


class LabConfig(Section):
    """The lab: read by `gpu-clusters` when it starts one, by no stack."""

    nodes: LabNodes = LabNodes.AUTO
    """`real`: a kubelet, containerd and runc for each node, which needs Linux with root. `simulated`: by
    stand-ins. `auto`: real where this computer can, and it says which it chose and why. Nodes of
    `usernetes` are always simulated: they are inside containers."""


def uses_lab(config: ClusterConfig) -> bool:
    """Whether any part of the cluster is."""
    if isinstance(config.hosts, LabHosts):
        return True
    return isinstance(config, CaasConfig) and isinstance(config.kubernetes, LabKubernetes)


class Need(Enum):
    """What a stack does about one secret."""

    MUST = auto()
    MAY = auto()
    LAB = auto()
    """Reads it from the lab."""
    NOT = auto()


@dataclass(frozen=True, slots=True)
class Use:
    need: Need
    why: str = ""


_MAY = Use(Need.MAY)


def uses(config: ClusterConfig) -> Mapping[str, Use]:
    if isinstance(config, CaasConfig):
        section, known = "caas", _caas(config)
    elif isinstance(config, Rke2Config):
        section, known = "rke2", _rke2(config)
    elif isinstance(config, GkeConfig):
        section, known = "gke", {}
    else:
        section, known = "usernetes", _ssh("usernetes", config.hosts)
    others = (key for key in SECRET_KEYS if key not in known)
    return {**known, **dict.fromkeys(others, Use(Need.NOT, f"the cluster type is {section}"))}


def needed(config: ClusterConfig) -> Mapping[str, str]:
    """Secrets that have to be set before `up`, and why."""
    return {key: use.why for key, use in uses(config).items() if use.need is Need.MUST}


def lab_ends_tls(config: CaasConfig) -> bool:
    """Whether the API shows a certificate of the lab."""
    return isinstance(config.kubernetes, LabKubernetes) and config.api.exposure is None


def given_chain(config: CaasConfig) -> str | None:
    """The chain of the API's certificate, if the configuration gives one."""
    stated = getattr(config.api.exposure, "certificate", None)
    return stated.chain if isinstance(stated, GivenCertificate) else None


def _ssh(section: str, hosts: object) -> dict[str, Use]:
    in_lab = isinstance(hosts, LabHosts)
    return {"ssh-private-key": Use(Need.LAB, f"{section}.hosts.source is lab") if in_lab else _MAY}


def _if(when: object, why: str, otherwise: str) -> Use:
    return Use(Need.MUST, why) if when else Use(Need.NOT, otherwise)


def _rke2(config: Rke2Config) -> dict[str, Use]:
    if not isinstance(config, MadeCluster):
        source = "rke2.kubernetes.source is existing"
        unused = ("ssh-private-key", "server-token", "agent-token", "registry-credentials")
        kubeconfig = {"kubeconfig": Use(Need.MUST, f"while {source}")}
        return {**kubeconfig, **dict.fromkeys(unused, Use(Need.NOT, source))}
    pulled = ", ".join(config.registry_auth)
    why, otherwise = (
        f"with which the nodes pull from {pulled}",
        "rke2.registry-auth names no registry",
    )
    return {
        "server-token": _MAY,
        "agent-token": _MAY,
        "registry-credentials": _if(pulled, why, otherwise),
        **_ssh("rke2", config.hosts),
    }


def _caas(config: CaasConfig) -> dict[str, Use]:
    ssh, of_cluster = _ssh("caas", config.hosts), Use(Need.LAB, "caas.kubernetes.source is lab")
    lab = ssh["ssh-private-key"] if isinstance(config.hosts, LabHosts) else None
    resets = "with which the controllers reset GPUs and activate partitions"
    full, policy = (
        config.leases.recycle_policy is RecyclePolicy.FULL,
        "caas.leases.recycle-policy is",
    )
    pulling = ", ".join(one.name for one in config.tenants if one.images.registry_auth)
    given = "caas.api.exposure.certificate.source is given"
    found = {
        "controller-ssh-private-key": lab or Use(Need.MUST, resets),
        **ssh,
        "kubeconfig": Use(Need.MUST, "while caas.kubernetes.source is existing"),
        "bmc-password": (full and lab) or _if(full, f"while {policy} full", f"{policy} not full"),
        "tenant-registry-credentials": _if(
            pulling,
            f"with which {pulling} pull images",
            "no tenant's images.registry-auth names a registry",
        ),
        "api-private-key": of_cluster
        if lab_ends_tls(config)
        else _if(
            given_chain(config), f"while {given}", "caas.api.exposure names no given certificate"
        ),
    }
    match config.kubernetes:
        case Rke2Kubernetes():
            found["kubeconfig"] = Use(Need.NOT, "caas.kubernetes.source is rke2")
            found |= {"server-token": _MAY, "agent-token": _MAY}
        case LabKubernetes():
            found["kubeconfig"] = of_cluster
    return found


_PLACEHOLDER = re.compile(
    r"(^|[./@-])example\.(com|net|org)\b"  # reserved for documents by RFC 2606
    r"|^my-project$"
    r"|^203\.0\.113\.0/24$"  # for documents, by RFC 5737
    r"|^(ssh|ecdsa)-\S+ \S*EXAMPLE"
    r"|^(.*@sha256:)?0{48}[0-9a-f]{16}$",
)


def placeholders(config: ClusterConfig) -> list[Finding]:
    """All of them, none in a lab: there everything is made up."""
    return (
        [] if uses_lab(config) else list(_below(config.model_dump(mode="json", by_alias=True), ()))
    )


def _below(value: Any, path: Path) -> Iterator[Finding]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _below(one, (*path, str(key)))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _below(one, (*path, at))
    elif isinstance(value, str) and _PLACEHOLDER.search(value):
        yield finding("config.placeholder", path, show(value))
