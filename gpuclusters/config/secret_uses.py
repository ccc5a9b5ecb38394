"""Which secrets a stack reads, and why it needs them or leaves them alone. Pure, and without Pulumi."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from gpuclusters.config.api import GivenCertificate
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kubernetes import LabKubernetes, Rke2Kubernetes
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.stack import SECRET_KEYS
from gpuclusters.lease.model import RecyclePolicy


class Need(Enum):
    """What a stack does about one secret."""

    MUST = auto()
    MAY = auto()
    LAB = auto()
    """Reads it from the lab."""
    NOT = auto()


@dataclass(frozen=True, slots=True)
class Use:
    """What a stack does about one secret, and why."""

    need: Need
    why: str = ""


_MAY = Use(Need.MAY)


def uses(config: ClusterConfig) -> Mapping[str, Use]:
    """What the stack does about each of `SECRET_KEYS`."""
    if isinstance(config, CaasConfig):
        section, known = "caas", _caas(config)
    elif isinstance(config, Rke2Config):
        section, known = "rke2", {**_rke2(config), **_ssh("rke2", config.hosts)}
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


def _rke2(config: Rke2Config) -> dict[str, Use]:
    pulled = ", ".join(config.registry_auth)
    return {
        "server-token": _MAY,
        "agent-token": _MAY,
        "registry-credentials": Use(Need.MUST, f"with which the nodes pull from {pulled}")
        if pulled
        else Use(Need.NOT, "rke2.registry-auth names no registry"),
    }


def _caas(config: CaasConfig) -> dict[str, Use]:
    ssh = _ssh("caas", config.hosts)
    lab = ssh["ssh-private-key"] if isinstance(config.hosts, LabHosts) else None
    resets = "with which the controllers reset GPUs and activate partitions"
    found = {"controller-ssh-private-key": lab or Use(Need.MUST, resets), **ssh}
    of_cluster = Use(Need.LAB, "caas.kubernetes.source is lab")
    match config.kubernetes:
        case Rke2Kubernetes():
            found["kubeconfig"] = Use(Need.NOT, "caas.kubernetes.source is rke2")
            found |= {"server-token": _MAY, "agent-token": _MAY}
        case LabKubernetes():
            found["kubeconfig"] = of_cluster
        case _:
            found["kubeconfig"] = Use(Need.MUST, "while caas.kubernetes.source is existing")
    policy = "caas.leases.recycle-policy is"
    found["bmc-password"] = (
        lab or Use(Need.MUST, f"while {policy} full")
        if config.leases.recycle_policy is RecyclePolicy.FULL
        else Use(Need.NOT, f"{policy} not full")
    )
    pulling = ", ".join(one.name for one in config.tenants if one.images.registry_auth)
    found["tenant-registry-credentials"] = (
        Use(Need.MUST, f"with which {pulling} pull images")
        if pulling
        else Use(Need.NOT, "no tenant's images.registry-auth names a registry")
    )
    if lab_ends_tls(config):
        found["api-private-key"] = of_cluster
    elif given_chain(config):
        why = "while caas.api.exposure.certificate.source is given"
        found["api-private-key"] = Use(Need.MUST, why)
    else:
        why = "caas.api.exposure names no given certificate"
        found["api-private-key"] = Use(Need.NOT, why)
    return found
