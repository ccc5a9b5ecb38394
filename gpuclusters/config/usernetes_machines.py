"""The machines of a `usernetes` cluster: which node runs on which, their GPUs, who prepares them."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gpuclusters.config.base import DnsLabel, Flag, Integer, Section, Text, refusal
from gpuclusters.config.hosts import User
from gpuclusters.config.rke2_cluster_pools import GpuProduct
from gpuclusters.domain.usernetes_network import FIRST_NUMBER, LAST_NUMBER

NodeNumber = Annotated[Integer, Field(ge=FIRST_NUMBER, le=LAST_NUMBER)]


def _account(value: str) -> str:
    if value == "root":
        raise refusal(
            "is root, and the point of this cluster type is that nothing of it runs as root",
            "write an account without privileges; ubuntu is the default",
        )
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, bool):  # which Python counts among the numbers
        raise refusal("is not a number of GPUs", "write 1, 2, 4 or 8")
    return value


def _host_ip(value: str) -> str:
    try:
        address = IPv4Address(value)
    except AddressValueError:
        raise refusal("is not an IPv4 address", 'write one like "192.0.2.10"') from None
    return str(address)


HostIp = Annotated[Text, AfterValidator(_host_ip)]
Account = Annotated[User, AfterValidator(_account)]


class ControlPlane(Section):
    """The node with the API. There is one: Usernetes has no second."""

    host: DnsLabel
    """Name of the machine, and of the node."""
    number: NodeNumber = 1
    """Number of the node: its own network is 10.100.<number>.0/24. It never changes."""
    host_ip: HostIp | None = None
    """IPv4 address at which the other hosts reach it; by default that of its default route."""


class Worker(Section):
    """A node that joins."""

    host: DnsLabel
    """Name of the machine, and of the node."""
    number: NodeNumber
    """Number of the node. It goes with the machine and not with its place in the list, so that a worker
    can be removed from the middle. It never changes."""
    host_ip: HostIp | None = None
    """IPv4 address at which the other hosts reach it; by default that of its default route."""


class NodeGpus(Section):
    """The GPUs of each node, the control plane included: all nodes are alike."""

    product: GpuProduct
    """What they are: v100-sxm2-16gb, t4, … (docs/rke2.md has the list)."""
    count: Annotated[
        Literal[1, 2, 4, 8], BeforeValidator(_whole, json_schema_input_type=Literal[1, 2, 4, 8])
    ]
    """How many each node has; a node that shows fewer is not ready."""


class PreparedBy(StrEnum):
    """Who does what needs root on a host."""

    SUDO = "sudo"
    """This program, by sudo without a password."""
    ADMINISTRATOR = "administrator"
    """Somebody else. Nothing that needs root is done; what is missing is said, with the command for it."""


class RootlessPreparation(Section):
    """What needs root on a host: packages, driver, cgroups, kernel modules, subordinate ids, linger."""

    by: PreparedBy = PreparedBy.SUDO
    """sudo or administrator."""
    remove_data: Flag = False
    """Whether a host that leaves the cluster loses all of the account's images and volumes too."""


class ContainerEngine(StrEnum):
    """What the nodes' containers run in."""

    DOCKER = "docker"
    """Rootless Docker, the only one that is built."""
    PODMAN = "podman"
    """Refused: its network keeps flannel from the API, and nobody has a GPU recipe for it."""
    NERDCTL = "nerdctl"
    """Refused: it and rootless Docker exclude each other on a host, and nobody has a GPU recipe for it."""
