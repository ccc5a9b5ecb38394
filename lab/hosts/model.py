"""What a simulated host is: its specification, where it is reached, and what can go wrong."""

import re
from dataclasses import dataclass, field
from typing import Final, Literal

USER: Final = "operator"
"""The only account that a simulated host lets in; `sudo -n` makes it root."""

BMC_USER: Final = "admin"
"""The account on a host's management controller that may read."""

ADDRESS: Final = "127.0.0.1"

Condition = Literal["prepared", "node", "bare"]
"""What was done to a machine before: `prepared` is as our own preparation leaves it; `bare` has an operating
system and nothing else: no IOMMU, no huge pages, nouveau on the GPUs, no service VM, packages missing; `node`
is as bare, but somebody has made it a node of a cluster: kubelet and containerd are there. A machine that
runs NVIDIA's driver itself has that driver when it is prepared, and nouveau when it is not."""

System = Literal["ubuntu", "rocky", "sles"]
"""The operating system: which tools deal with packages, boot loader and initramfs."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class HostsError(Exception):
    """Simulated hosts cannot be started, stopped or reached; one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One machine to simulate. `name` is a DNS label; it names the host's folder as well."""

    name: str
    platform: str = "supermicro-hgx-h100"
    condition: Condition = "prepared"
    system: System = "ubuntu"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise HostsError(
                f"{self.name!r} cannot name a host: use lower-case letters, digits and '-' "
                "(63 at most), such as hgx-01"
            )


@dataclass(frozen=True, slots=True)
class BmcEndpoint:
    """Where a host's management controller answers Redfish. `certificate` is the PEM to pin."""

    url: str
    user: str
    password: str = field(repr=False)
    certificate: str


@dataclass(frozen=True, slots=True)
class HostEndpoint:
    """Where a host answers. `host_key` is its public key in OpenSSH's one-line form."""

    address: str
    port: int
    user: str
    host_key: str
    bmc: BmcEndpoint

    @property
    def known_host(self) -> str:
        """The line of a `known_hosts` file for it: at port 22 a host is known by its address alone."""
        where = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
        return f"{where} {self.host_key}\n"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The server process of one folder of hosts: running or not, and what it serves."""

    running: bool
    pid: int | None
    hosts: dict[str, HostEndpoint]
    detail: str
