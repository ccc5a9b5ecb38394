"""One host of a Usernetes cluster: what it must be, and what is found on it.

Source: Makefile, docker-compose.yaml and kubeadm-config.yaml of Usernetes gen2-v20250210.0 to generation 3.
Ports and ranges have to be equal on all hosts of a cluster, and set for every call of `make`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from gpuclusters.compat.usernetes_versions import PREFLIGHT_IMAGE
from gpuclusters.core.facts import Facts, Yes
from gpuclusters.core.model import Strict, matches
from gpuclusters.host.model import HostConnection
from gpuclusters.usernetes.addresses import (
    FIRST_NUMBER,
    LAST_NUMBER,
    LONGEST_NODE_NAME,
    ApiAccess,
    NetworkPlan,
)

PROJECT = "usernetes"
"""Name of the compose project: without one it would follow the folder, and with it the volumes' names."""
DEFAULT_MTU = 1500


class Role(StrEnum):
    """What a host is in its cluster."""

    CONTROL_PLANE = "control-plane"
    WORKER = "worker"


def _file_name(text: str) -> str:
    if not text or "/" in text or text.startswith("."):
        raise ValueError("a file of the overlay has a plain name")
    return text


Account = Annotated[
    str, matches(r"[a-z_][a-z0-9_-]{0,31}", "write a Linux login name, like ubuntu")
]
NodeName = Annotated[
    str,
    Field(max_length=LONGEST_NODE_NAME),
    matches(
        r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?",
        "a node is named with lower-case letters, digits, '-' and '.'; it becomes a label, so that 63 "
        "characters are the most",
    ),
]
Address = Annotated[
    str, matches(r"\d{1,3}(\.\d{1,3}){3}", "write an IPv4 address, which other hosts reach it at")
]


class SourceArchive(Strict):
    """Usernetes itself, by the digest of one archive."""

    tag: Annotated[
        str, matches(r"gen[23]-v[0-9][0-9.]*", "write a tag of Usernetes, like gen3-v20260902.0")
    ]
    location: Annotated[str, Field(min_length=1, max_length=500)]
    sha256: Annotated[
        str, matches(r"[0-9a-f]{64}", "write the 64 digits that `sha256sum FILE` prints first")
    ]
    kubernetes: Annotated[str, matches(r"v\d+\.\d+\.\d+", "write a release, like v1.37.0")]
    """Release in the node image of this tag."""

    @property
    def generation(self) -> int:
        """2 or 3."""
        return int(self.tag[3])

    @property
    def install_target(self) -> str:
        """What installs flannel; the older name still works in generation 3, and says that it is old."""
        return "install-cni" if self.generation >= 3 else "install-flannel"


class ControlPlane(Strict):
    """The host that is asked about the cluster, and what a worker has to know of it."""

    connection: HostConnection
    account: Account
    node_name: NodeName
    host_ip: Address
    """At which the other hosts reach it."""


class UsernetesNodeInputs(Strict):
    """Inputs of one host; no secret among them."""

    connection: HostConnection
    account: Account
    """Whose rootless Docker it is, and who runs everything."""
    cluster: Annotated[str, Field(min_length=1, max_length=63)]
    role: Role
    node_name: NodeName
    number: Annotated[int, Field(ge=FIRST_NUMBER, le=LAST_NUMBER)]
    host_ip: Address | None = None
    """At which other hosts reach it; found on the host, as the Makefile does, where it is not given."""
    control: ControlPlane | None = None
    """Whom a worker joins; None for the control plane."""
    cluster_id: str | None = None
    """Of the cluster that a worker is to be in: changes when the control plane was made anew."""
    source: SourceArchive
    container_toolkit: Annotated[
        str, matches(r"[0-9][0-9A-Za-z.+~-]*", "write a version, like 1.20.0")
    ]
    preflight_image: Annotated[str, Field(min_length=1, max_length=255)] = PREFLIGHT_IMAGE
    overlay: dict[Annotated[str, AfterValidator(_file_name)], str]
    """Our files beside upstream's, by name."""
    network: NetworkPlan = NetworkPlan()
    slirp4netns: bool = True
    """Whether the rootless network is slirp4netns: generation 3 then turns a checksum of flannel off."""
    gpus: Annotated[int, Field(ge=1, le=16)]
    schedule_on_control_plane: bool = True
    api: ApiAccess = ApiAccess(through="tunnel", local_port=6443)
    join_token_hours: Annotated[float, Field(gt=0, le=24)] = 1
    join_timeout_seconds: Annotated[float, Field(gt=0, le=7200)] = 900
    build_timeout_seconds: Annotated[float, Field(gt=0, le=14400)] = 3600
    drain_timeout_seconds: Annotated[int, Field(ge=0, le=86_400)] = 600
    """0: pods are left where they are."""

    @model_validator(mode="after")
    def _fits_together(self) -> UsernetesNodeInputs:
        if self.role is Role.WORKER and self.control is None:
            raise ValueError("control: name the control plane that this worker joins")
        if self.role is Role.CONTROL_PLANE and self.control is not None:
            raise ValueError("control: the control plane joins nobody; leave it out")
        if self.control is not None and self.control.connection.host == self.connection.host:
            raise ValueError("control: a host runs one node; name another one")
        fixed = NetworkPlan()
        ranges = (self.network.pod_subnet, self.network.service_subnet)
        if self.source.generation < 3 and ranges != (fixed.pod_subnet, fixed.service_subnet):
            raise ValueError(
                f"network: {self.source.tag} has its ranges of pods and services in a file of its own "
                f"({fixed.pod_subnet}, {fixed.service_subnet}); leave them, or take a tag of generation 3"
            )
        return self

    @property
    def natural_id(self) -> str:
        return f"{self.cluster}/{self.connection.host}"

    @property
    def is_control_plane(self) -> bool:
        """Whether it makes the cluster."""
        return self.role is Role.CONTROL_PLANE

    @property
    def release(self) -> str:
        """What cannot change under a node's volumes, which keep /etc, /opt and /var of the old one.

        Usernetes and with it Kubernetes; and what kubeadm has written into certificates and manifests.
        """
        network = self.network
        known = [
            self.source.tag,
            self.source.kubernetes,
            str(network.pod_subnet),
            str(network.service_subnet),
            str(network.node_subnet(self.number)),
            dict(network.ports.variables),
        ]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]

    @property
    def image(self) -> str:
        """Of all that the node container is made of: another one is made anew around the same volumes."""
        source, overlay = self.source, sorted(self.overlay.items())
        known = [source.tag, source.sha256, self.container_toolkit, overlay, self.network.mtu]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]

    def environment(self, host_ip: str) -> dict[str, str]:
        """Every variable of the Makefile and of our overlay, so that none is found by upstream itself."""
        network = self.network
        values: dict[str, str] = {
            "COMPOSE_PROJECT_NAME": PROJECT,
            "CONTAINER_ENGINE": "docker",
            "CONTAINER_ENGINE_TYPE": "docker",
            "HOSTNAME": self.connection.host,
            "HOST_IP": host_ip,
            "NODE_NAME": self.node_name,
            "NODE_SUBNET": str(network.node_subnet(self.number)),
            "NODE_IP": str(network.node_ip(self.number)),
            **network.ports.variables,
            "NODE_MTU": str(network.mtu or DEFAULT_MTU),
            "NVIDIA_CONTAINER_TOOLKIT_VERSION": self.container_toolkit,
            "GPU_CLUSTERS_IMAGE": self.image,
            "QUICK": "0",
            "BUSYBOX_IMAGE": self.preflight_image,
        }
        if self.source.generation >= 3:
            values |= {
                "CNI": "flannel",
                "POD_SUBNET": str(network.pod_subnet),
                "SERVICE_SUBNET": str(network.service_subnet),
                "FLANNEL_IGNORE_IP_CHECKSUM": "1" if self.slirp4netns else "",
            }
        return values


def words(environment: Mapping[str, str]) -> list[str]:
    """The variables as arguments of a script; none of them is a secret."""
    return [f"{name}={value}" for name, value in environment.items()]


RUNNING, ABSENT = "running", "absent"


class LiveNode(Facts):
    """The host's marks, its container and what runs in it: what `inspect.sh` prints."""

    owner: str = ""
    """`cluster/host` that made the node, or began to."""
    machine: str = ""
    """Id of the machine that it was made on; empty where machines have none."""
    release: str = ""
    """What its volumes were made with."""
    host_ip: str = ""
    """What its certificates and labels were made with."""
    began: Yes = False
    """kubeadm has begun and did not end."""
    joined: str = ""
    """Id of the cluster that it was Ready in; empty if that was never reached."""
    source: str = ""
    """Digest over upstream's files; empty without them."""
    content: str = ""
    """The same when they were brought."""
    overlay: Mapping[str, str] = {}
    """sha256 of our files that are there, by name."""
    clock: int = 0
    route: str = ""
    """Address that the host's default route goes out with."""
    host_gpu: tuple[str, ...] = ()
    docker: str = ""
    """`ok`, or why the account's daemon does not answer."""
    container: str = ABSENT
    image: str = ""
    """What the container says that it was made of."""
    volumes: int = 0
    kubelet_conf: Yes = False
    cluster_id: str = ""
    gpu_unit: str = ""
    cdi: tuple[str, ...] = ()
    """Names in the node's CDI specification, without `nvidia.com/gpu=`."""
    node_gpu: tuple[str, ...] = ()
    runtime: str = ""
    runtime_mode: str = ""
    certificates: str = ""

    @property
    def is_running(self) -> bool:
        return self.container == RUNNING

    @property
    def is_begun(self) -> bool:
        """Whether anything of a node is there."""
        return bool(self.owner or self.volumes or self.container != ABSENT)

    @property
    def source_differs(self) -> bool:
        """Whether upstream's files are missing, or somebody has changed them since they were brought."""
        return not self.source or self.source != self.content

    @property
    def has_other_devices(self) -> bool:
        """Whether the container was given devices that the host no longer has."""
        return self.is_running and set(self.node_gpu) != set(self.host_gpu)
