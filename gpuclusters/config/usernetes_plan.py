"""From the section of a `usernetes` cluster to the arguments of its components. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Literal

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
    Training,
    UsernetesConfig,
    VolumeData,
    Worker,
)
from gpuclusters.driver.model import Modules, WantedDriver
from gpuclusters.gcp import firewall_rules
from gpuclusters.gcp.firewall_rules import Allowed
from gpuclusters.proof.checks import CheckLevel
from gpuclusters.usernetes.addresses import ApiAccess, NetworkPlan, Ports

GPU = "nvidia.com/gpu"
DOCKER_MTU = 1500
"""What Docker gives its networks where nobody says otherwise."""
TRAINING_RUNG = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class NodePlan:
    """One node."""

    name: str
    """Of the machine and of the node: `NODE_NAME` is always passed, so that no long name of a cloud
    comes in."""
    role: Literal["control-plane", "worker"]
    number: int
    gpus: int
    subnet: IPv4Network
    """`NODE_SUBNET`: by the number, never by a hash and never by the place in the list."""
    ip: IPv4Address
    """`NODE_IP`."""
    host_ip: str | None
    """`HOST_IP`; None where the host finds it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlan:
    """The training of rung 9."""

    image: str
    pods: int
    gpus_per_pod: int
    epochs: int
    batch_size: int
    accuracy_floor: float
    """Share of the pictures, 0 to 1."""
    data_path: str
    claim: str | None
    """PersistentVolumeClaim that is mounted at `data_path`; None if the image has the data."""
    timeout_seconds: int | None
    """None: what so many nodes should take."""


def versions(config: UsernetesConfig) -> VersionSet:
    """The set, with what the configuration states in its place.

    A tag of the configuration's own is one that nobody has read about: its commit and the versions of its
    CNI plugins, Helm and flannel are not known then.
    """
    stated = config.version_overrides.model_dump(exclude_none=True)
    if "usernetes" in stated:
        stated |= {"usernetes_commit": None, "cni_plugins": None, "helm": None, "flannel": None}
    stated["driver"] = driver_version(config)
    return version_set(config.versions.value).model_copy(update=stated)


def driver_version(config: UsernetesConfig) -> str:
    """The driver that is installed, or that is expected where it is installed already."""
    return config.driver.version or version_set(config.versions.value).driver


def nodes(config: UsernetesConfig) -> tuple[NodePlan, ...]:
    """All nodes, the control plane first and the workers in the order of the list."""
    addresses = network(config)
    first = config.control_plane
    places: list[tuple[ControlPlane | Worker, Literal["control-plane", "worker"]]] = [
        (first, "control-plane"),
        *((worker, "worker") for worker in config.workers),
    ]
    return tuple(
        NodePlan(
            name=node.host,
            role=role,
            number=node.number,
            gpus=config.gpus.count,
            subnet=addresses.node_subnet(node.number),
            ip=addresses.node_ip(node.number),
            host_ip=node.host_ip,
        )
        for node, role in places
    )


def machine_names(config: UsernetesConfig) -> tuple[str, ...]:
    """Names of all machines, the control plane's first, each once."""
    return tuple(dict.fromkeys((config.control_plane.host, *(one.host for one in config.workers))))


def schedulable(config: UsernetesConfig) -> tuple[str, ...]:
    """Names of the nodes that take pods."""
    first = (config.control_plane.host,) if config.schedule_on_control_plane else ()
    return (*first, *(worker.host for worker in config.workers))


def allocatable(config: UsernetesConfig) -> Mapping[str, Mapping[str, int]]:
    """What every node has to offer, by node and resource."""
    return {name: {GPU: config.gpus.count} for name in machine_names(config)}


def uses_sudo(config: UsernetesConfig) -> bool:
    """Whether this program does what needs root."""
    return config.preparation.by is PreparedBy.SUDO


def modules(config: UsernetesConfig) -> ModulesPolicy:
    """The kernel modules of the driver: stated, else by the GPUs. Never auto."""
    stated = (
        config.driver.modules if isinstance(config.driver, PackagedDriver) else ModulesPolicy.AUTO
    )
    if stated is not ModulesPolicy.AUTO:
        return stated
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


def ports(config: UsernetesConfig) -> Ports:
    """Ports on the hosts."""
    return Ports(**config.network.ports.model_dump())


def tcp_ports(config: UsernetesConfig) -> tuple[int, ...]:
    """TCP ports that a node takes on its host. Generation 2 knows nothing of Calico."""
    known = ports(config).tcp
    calico = versions(config).generation > 2
    return tuple(port for name, port in known.items() if calico or not name.startswith("calico"))


def network(config: UsernetesConfig) -> NetworkPlan:
    """Addresses and ports."""
    stated = config.network
    return NetworkPlan(
        pod_subnet=stated.pod_subnet,
        service_subnet=stated.service_subnet,
        node_subnets=stated.node_subnets,
        mtu=stated.mtu or host_mtu(config),
        ports=ports(config),
    )


def host_mtu(config: UsernetesConfig) -> int | None:
    """The MTU of the machines' network, where this program makes it.

    slirp4netns sends what a container sends in packets of the same size; what is larger than the
    machines' network carries goes out in pieces.
    """
    hosts = config.hosts
    if isinstance(hosts, GcpHosts) and isinstance(hosts.network, OwnNetwork):
        return hosts.network.mtu
    return None


def api(config: UsernetesConfig) -> ApiAccess:
    """How the API is reached from outside of its host."""
    if isinstance(config.hosts, LabHosts):
        return ApiAccess(through="loopback")
    if isinstance(config.api, AddressApi):
        return ApiAccess(through="address", address=config.api.address)
    return ApiAccess(
        through="tunnel", local_port=config.api.local_port if config.api else TUNNEL_PORT
    )


def firewall(config: UsernetesConfig) -> tuple[Allowed, ...]:
    """What nodes send to each other."""
    return firewall_rules.usernetes(ports(config))


def ladder_nodes(config: UsernetesConfig) -> Sequence[Mapping[str, Any]]:
    """The nodes of the proof, with the field names of its inputs."""
    taking = set(schedulable(config))
    return [
        {"name": node.name, "gpus": node.gpus, "takes_pods": node.name in taking}
        for node in nodes(config)
    ]


def network_test(config: UsernetesConfig) -> Mapping[str, Any]:
    """Rung 6, with the field names of its inputs; without an image its default."""
    return _pods(config.proof.network_image or _training_image(config), config)


def vector_add(config: UsernetesConfig) -> Mapping[str, Any]:
    """Rung 8, with the field names of its inputs; without an image its default."""
    return _pods(config.proof.vector_add_image, config)


def _pods(image: str | None, config: UsernetesConfig) -> Mapping[str, Any]:
    stated = {"timeout_seconds": config.timeouts.rung_seconds}
    return stated if image is None else {**stated, "image": image}


def _training_image(config: UsernetesConfig) -> str | None:
    """What is pulled for rung 9 anyway has Python."""
    wanted = training(config)
    return None if wanted is None else wanted.image


def training(config: UsernetesConfig) -> TrainingPlan | None:
    """The training of the highest rung; None if the proof ends before."""
    stated = config.proof.training
    if stated is None or config.proof.rung < TRAINING_RUNG:
        return None
    return TrainingPlan(
        image=stated.image,
        pods=training_pods(config, stated),
        gpus_per_pod=stated.gpus_per_pod or config.gpus.count,
        epochs=stated.epochs,
        batch_size=stated.batch_size,
        accuracy_floor=stated.accuracy_floor_percent / 100,
        data_path=stated.data.path,
        claim=stated.data.claim if isinstance(stated.data, VolumeData) else None,
        timeout_seconds=stated.timeout_seconds,
    )


def training_pods(config: UsernetesConfig, stated: Training) -> int:
    """How many pods train: stated, else one on every node that takes pods."""
    return stated.pods or len(schedulable(config))


def images(config: UsernetesConfig) -> Sequence[str]:
    """Images that are known to be pulled, beside those of Usernetes and the default ones of rungs."""
    chosen = versions(config)
    found = [chosen.device_plugin_image]
    if config.metrics.kind != "none":
        found.append(chosen.dcgm_exporter_image)
    wanted = training(config)
    stated = (
        config.proof.network_image,
        config.proof.vector_add_image,
        wanted.image if wanted is not None else None,
    )
    return (*found, *(image for image in stated if image is not None))


def arguments(config: UsernetesConfig, highest: CheckLevel) -> dict[str, Any]:
    """The inputs of the ladder, and the arguments of its component, but the kubeconfig.

    Args:
        config: the section.
        highest: the last rung that is climbed; the training is described for rung 9 alone.
    """
    chosen = versions(config)
    return {
        "cluster": config.name,
        "rung": highest.value,
        "nodes": ladder_nodes(config),
        "namespace": config.proof.namespace,
        "smoke": network_test(config),
        "vector_add": vector_add(config),
        "training": _training(config) if highest is CheckLevel.TRAINING else None,
        "versions": {
            # One that somebody else installed, and that nobody names, is whatever the host shows.
            **({"driver": chosen.driver} if _driver_is_known(config) else {}),
            "container-toolkit": chosen.container_toolkit,
            "device-plugin": chosen.device_plugin,
            "kubernetes": chosen.kubernetes,
        },
        "timeout_seconds": config.timeouts.proof_seconds,
        "simulated": uses_lab(config),
    }


def _driver_is_known(config: UsernetesConfig) -> bool:
    return driver(config) is not None or config.driver.version is not None


def _training(config: UsernetesConfig) -> Mapping[str, Any] | None:
    plan = training(config)
    if plan is None:
        return None
    stated = asdict(plan)
    claim = stated.pop("claim")
    return {**stated, "data_claim": claim}
