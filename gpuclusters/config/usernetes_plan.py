"""From the section of a `usernetes` cluster to the arguments of its components. Pure."""

from __future__ import annotations

from typing import Any

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.compat.rke2_matrix import ModulesPolicy
from gpuclusters.compat.usernetes_versions import VersionSet, version_set
from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.gcp import GcpHosts, OwnNetwork
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.usernetes import (
    TUNNEL_PORT,
    AddressApi,
    ControlPlane,
    PackagedDriver,
    PreparedBy,
    UsernetesConfig,
    UsernetesProof,
    Worker,
)
from gpuclusters.driver.model import Modules, WantedDriver
from gpuclusters.proof.checks import CheckLevel
from gpuclusters.usernetes.addresses import ApiAccess, NetworkPlan

DOCKER_MTU = 1500
"""What Docker gives its networks where nobody says otherwise."""
TRAINING_RUNG = 9


def versions(config: UsernetesConfig) -> VersionSet:
    """The set, with what is stated in its place."""
    stated = config.version_overrides.model_dump(exclude_none=True)
    update = {**stated, "driver": driver_version(config)}
    return version_set(config.versions.value).model_copy(update=update)


def driver_version(config: UsernetesConfig) -> str:
    """The driver that is installed, or that is expected where it is installed already."""
    return config.driver.version or version_set(config.versions.value).driver


def nodes(config: UsernetesConfig) -> tuple[ControlPlane | Worker, ...]:
    """All nodes, the control plane first and the workers in the order of the list."""
    return (config.control_plane, *config.workers)


def machine_names(config: UsernetesConfig) -> tuple[str, ...]:
    """Names of all machines, the control plane's first, each once."""
    return tuple(dict.fromkeys(node.host for node in nodes(config)))


def schedulable(config: UsernetesConfig) -> tuple[str, ...]:
    """Names of the nodes that take pods."""
    taking = nodes(config) if config.schedule_on_control_plane else config.workers
    return tuple(node.host for node in taking)


def uses_sudo(config: UsernetesConfig) -> bool:
    """Whether this program does what needs root."""
    return config.preparation.by is PreparedBy.SUDO


def modules(config: UsernetesConfig) -> ModulesPolicy:
    """The kernel modules of the driver: stated, else by the GPUs. Never auto."""
    if (
        isinstance(config.driver, PackagedDriver)
        and config.driver.modules is not ModulesPolicy.AUTO
    ):
        return config.driver.modules
    return rke2_matrix.modules_for(gpu_products.product(config.gpus.product).architecture)


def driver(config: UsernetesConfig) -> WantedDriver | None:
    """The driver that this program installs on every host; None if it is there."""
    stated = config.driver
    if not isinstance(stated, PackagedDriver):
        return None
    return WantedDriver(
        version=driver_version(config),
        modules=Modules(modules(config).value),
        packages=stated.packages,
        reboot=stated.reboot,
        reboot_timeout_seconds=config.timeouts.driver_seconds,
    )


def tcp_ports(config: UsernetesConfig) -> tuple[int, ...]:
    """TCP ports that a node takes on its host. Generation 2 knows nothing of Calico."""
    known = config.network.ports.tcp
    calico = versions(config).generation > 2
    return tuple(port for name, port in known.items() if calico or not name.startswith("calico"))


def network(config: UsernetesConfig) -> NetworkPlan:
    """Addresses and ports, with the MTU of the machines' network where none is stated."""
    return config.network.model_copy(update={"mtu": config.network.mtu or host_mtu(config)})


def host_mtu(config: UsernetesConfig) -> int | None:
    """The MTU of the machines' network, where it is made here: larger packets would go out in pieces."""
    made = config.hosts.network if isinstance(config.hosts, GcpHosts) else None
    return made.mtu if isinstance(made, OwnNetwork) else None


def api(config: UsernetesConfig) -> ApiAccess:
    if isinstance(config.hosts, LabHosts):
        return ApiAccess(through="loopback")
    if isinstance(config.api, AddressApi):
        return ApiAccess(through="address", address=config.api.address)
    return ApiAccess(
        through="tunnel", local_port=config.api.local_port if config.api else TUNNEL_PORT
    )


def ladder(
    cluster: str,
    proof: UsernetesProof,
    highest: CheckLevel,
    *,
    pods: int,
    gpus: int,
    rung_seconds: int,
    proof_seconds: int,
) -> dict[str, Any]:
    """What the ladder asks of any cluster; `pods` and `gpus` of each: of a training that states none."""
    stated = proof.training if proof.rung >= TRAINING_RUNG else None
    # What is pulled for the training anyway has Python.
    images = {
        "network_image": proof.network_image or (stated.image if stated else None),
        "vector_add_image": proof.vector_add_image,
    }
    training = None
    if stated and highest is CheckLevel.TRAINING:
        own = {"pods": stated.pods or pods, "gpus_per_pod": stated.gpus_per_pod or gpus}
        training = stated.model_dump() | own
    return {
        "cluster": cluster,
        "rung": highest.value,
        "namespace": proof.namespace,
        **{name: image for name, image in images.items() if image},
        "rung_seconds": rung_seconds,
        "training": training,
        "timeout_seconds": proof_seconds,
    }


def arguments(config: UsernetesConfig, highest: CheckLevel) -> dict[str, Any]:
    """The inputs of the ladder up to a rung, and the arguments of its component, but the kubeconfig."""
    chosen, takes_pods = versions(config), schedulable(config)
    # A driver that somebody else installed, and that nobody names, is whatever the host shows.
    known = isinstance(config.driver, PackagedDriver) or config.driver.version is not None
    return {
        **ladder(
            config.name,
            config.proof,
            highest,
            pods=len(takes_pods),
            gpus=config.gpus.count,
            rung_seconds=config.timeouts.rung_seconds,
            proof_seconds=config.timeouts.proof_seconds,
        ),
        "nodes": [
            {"name": node.host, "gpus": config.gpus.count, "takes_pods": node.host in takes_pods}
            for node in nodes(config)
        ],
        "versions": {
            **({"driver": chosen.driver} if known else {}),
            "container-toolkit": chosen.container_toolkit,
            "device-plugin": chosen.device_plugin,
            "kubernetes": chosen.kubernetes,
        },
        "simulated": uses_lab(config),
    }
