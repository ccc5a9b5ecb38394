"""`network` and `api` of a `usernetes` cluster: its addresses and ports, and how the API is reached."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuclusters.config.base import Integer, Network, Port, Section, Text, refusal
from gpuclusters.domain import usernetes_network

_DEFAULT = usernetes_network.Ports()
TUNNEL_PORT = 16443


def _address(value: str) -> str:
    if any(character.isspace() or character in "/@[]:" for character in value):
        raise refusal(
            "is not a host name or an IPv4 address",
            "write it alone, like 192.0.2.10 or api.example.com; the port is network.ports.kube-apiserver",
        )
    return value


ApiAddress = Annotated[Text, AfterValidator(_address)]


class UsernetesPorts(Section):
    """Ports that the nodes take on their hosts. They are equal on all hosts."""

    etcd: Port = _DEFAULT.etcd
    """etcd (TCP). Only its own host uses it; the firewall keeps it closed."""
    kube_apiserver: Port = _DEFAULT.kube_apiserver
    """The API (TCP)."""
    kubelet: Port = _DEFAULT.kubelet
    """kubelet (TCP)."""
    flannel: Port = _DEFAULT.flannel
    """VXLAN of flannel (UDP)."""
    calico: Port = _DEFAULT.calico
    """VXLAN of Calico (UDP): generation 3 publishes it with flannel too."""
    calico_typha: Port = _DEFAULT.calico_typha
    """Typha of Calico (TCP): generation 3 publishes it with flannel too."""


class UsernetesNetwork(Section):
    """Addresses and ports. They never change once the cluster is there."""

    pod_subnet: Network = usernetes_network.POD_SUBNET
    """Addresses of pods; each node takes a /24 of it. Generation 2 of Usernetes has no other."""
    service_subnet: Network = usernetes_network.SERVICE_SUBNET
    """Addresses of services. Generation 2 of Usernetes has no other."""
    node_subnets: Network = usernetes_network.NODE_SUBNETS
    """A /16, of which each node takes the /24 of its number. Only its own host sees it."""
    mtu: Annotated[Integer | None, Field(ge=1280, le=65520)] = None
    """Bytes of the largest packet between a node's container and its host; by default that of the
    machines' network on Google Cloud, else Docker's, which is 1500."""
    ports: UsernetesPorts = Field(default_factory=UsernetesPorts)
    """Ports on the hosts."""


class AddressApi(Section):
    """The API answers at an address that leads to the control plane's host."""

    through: Literal["address"]
    """How the API is reached."""
    address: ApiAddress
    """Host name or IPv4 address, without the port. The certificate need not have it: a client is told to
    look for the node's name in it."""


class TunnelApi(Section):
    """The API is reached by SSH to the control plane's host, for as long as a command needs it."""

    through: Literal["tunnel"]
    """How the API is reached."""
    local_port: Annotated[Integer, Field(ge=1024, le=65535)] = TUNNEL_PORT
    """Port on 127.0.0.1 that leads there while `gpu-clusters tunnel` runs."""


Api = Annotated[AddressApi | TunnelApi, Field(discriminator="through")]
