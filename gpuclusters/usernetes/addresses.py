"""Addresses and ports of a Usernetes cluster: what each node is given, and what must not meet. Pure.

Source: Makefile, docker-compose.yaml and kubeadm-config.yaml of Usernetes gen2 and gen3. A node's own
network is seen by its host alone, but upstream asks that no two nodes share one. Upstream takes its
number from one byte of a hash of the host's name, of which two are the same in one of ten clusters with
8 nodes; here every node has a number that is written down.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations
from typing import Annotated, Literal

from pydantic import Field

from gpuclusters.core.model import Strict
from gpuclusters.core.section import Integer, Network, Port, Section

NODE_SUBNETS = IPv4Network("10.100.0.0/16")
"""Of which every node takes a /24."""
POD_SUBNET = IPv4Network("10.244.0.0/16")
SERVICE_SUBNET = IPv4Network("10.96.0.0/16")
DOCKER_BRIDGE = IPv4Network("172.17.0.0/16")
"""docker0 of every host."""
NODE_PREFIX = 24
NODE_ADDRESS = 100
"""Last byte of a node's address: `NODE_IP` of the Makefile is `.100` of `NODE_SUBNET`."""
FIRST_NUMBER = 1
LAST_NUMBER = 254
LONGEST_NODE_NAME = 63
"""It becomes a label of the node."""


class Ports(Section):
    """Ports that the nodes take on their hosts. They are equal on all hosts."""

    etcd: Port = 2379
    """etcd (TCP). Only its own host uses it; the firewall keeps it closed."""
    kube_apiserver: Port = 6443
    """The API (TCP)."""
    kubelet: Port = 10250
    """kubelet (TCP)."""
    flannel: Port = 8472
    """VXLAN of flannel (UDP)."""
    calico: Port = 4789
    """VXLAN of Calico (UDP): generation 3 publishes it with flannel too."""
    calico_typha: Port = 5473
    """Typha of Calico (TCP): generation 3 publishes it with flannel too."""

    @property
    def tcp(self) -> Mapping[str, int]:
        return self.model_dump(exclude={"flannel", "calico"})

    @property
    def udp(self) -> Mapping[str, int]:
        return self.model_dump(include={"flannel", "calico"})

    @property
    def variables(self) -> Mapping[str, str]:
        """As variables of Usernetes' Makefile; generation 2 does not know the last two."""
        return {f"PORT_{name.upper()}": str(port) for name, port in self}


class NetworkPlan(Section):
    """Addresses and ports. They never change once the cluster is there."""

    pod_subnet: Network = POD_SUBNET
    """Addresses of pods; each node takes a /24 of it. Generation 2 of Usernetes has no other."""
    service_subnet: Network = SERVICE_SUBNET
    """Addresses of services. Generation 2 of Usernetes has no other."""
    node_subnets: Network = NODE_SUBNETS
    """A /16, of which each node takes the /24 of its number. Only its own host sees it."""
    mtu: Annotated[Integer | None, Field(ge=1280, le=65520)] = None
    """Bytes of the largest packet between a node's container and its host; by default that of the
    machines' network on Google Cloud, else Docker's, which is 1500."""
    ports: Ports = Field(default_factory=Ports)
    """Ports on the hosts."""

    def node_subnet(self, number: int) -> IPv4Network:
        """`NODE_SUBNET` of a node: the /24 of its number; ValueError for a number that none can have."""
        if not FIRST_NUMBER <= number <= LAST_NUMBER:
            known = f"they go from {FIRST_NUMBER} to {LAST_NUMBER}"
            raise ValueError(f"{number} is no number of a node; {known}")
        first = int(self.node_subnets.network_address) + number * 2 ** (32 - NODE_PREFIX)
        found = IPv4Network((first, NODE_PREFIX))
        if not found.subnet_of(self.node_subnets):
            raise ValueError(f"{self.node_subnets} has no /24 for node {number}; write a /16")
        return found

    def node_ip(self, number: int) -> IPv4Address:
        """`NODE_IP` of a node, in its own network."""
        return self.node_subnet(number)[NODE_ADDRESS]


class ApiAccess(Strict):
    """How the API is reached from outside of the control plane's host. Plain data."""

    through: Literal["address", "tunnel", "loopback"]
    """`address`: one that leads to the control plane's host. `tunnel`: SSH to the control plane's host,
    while a command runs. `loopback`: the lab, whose API is on this computer."""
    address: str | None = None
    """With `address`: a name or an IPv4 address."""
    local_port: Port | None = None
    """With `tunnel`: the port on 127.0.0.1."""


def collisions(ranges: Mapping[str, IPv4Network]) -> Iterator[tuple[str, str]]:
    """Names of ranges that have an address in common, in the order of the mapping."""
    for (one, first), (other, second) in combinations(ranges.items(), 2):
        if first.overlaps(second):
            yield one, other


def shared_ports(ports: Ports) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Ports that two services would listen on, with the names of these services."""
    for family in (ports.tcp, ports.udp):
        for port, count in Counter(family.values()).items():
            if count > 1:
                yield port, tuple(name for name, one in family.items() if one == port)
