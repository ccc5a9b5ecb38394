"""`hosts`, `adopt`: the machines, how they are reached, and what of them is taken over."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuclusters.core import naming
from gpuclusters.core.finding import Path
from gpuclusters.core.section import DnsLabel, Port, Section, Text, holds, matches, refusal
from gpuclusters.host.model import KEY_TYPES, parse_host_key


def _public_key(what: str, printed: str) -> AfterValidator:
    def whole(value: str) -> str:
        if "PRIVATE KEY" in value:
            raise refusal("private-key", printed=printed)
        try:
            return parse_host_key(value)
        except ValueError:
            case = "cut-key" if value.split(" ")[0] in KEY_TYPES else "public-key"
            raise refusal(case, what=what, printed=printed) from None

    return AfterValidator(whole)


HostAddress = Annotated[
    Text,
    matches("(?![^:]+:[0-9]+$).*", "host-with-port"),
    holds(naming.is_host, "host-address"),
]
HostKey = Annotated[
    Text, _public_key("host key", "type and key as `ssh-keyscan -t ed25519 ADDRESS` prints them")
]
AuthorizedKey = Annotated[
    Text, _public_key("key", "the line that `cat ~/.ssh/id_ed25519.pub` prints")
]
User = Annotated[Text, matches("(?!-)[^:@/\\s\\x80-\\U0010ffff]*", "unix-user")]


class Machine(Section):
    """One machine that answers SSH."""

    name: DnsLabel
    """Name of the machine; the node of the same name runs on it."""
    address: HostAddress
    """Host name or IP address that SSH connects to."""
    port: Port = 22
    """Port of its SSH server."""
    host_key: HostKey
    """Public host key. A machine that cannot prove that it is the one meant gets no command."""


class ExistingHosts(Section):
    """Machines that you have. The account needs `sudo` without a password wherever root is needed."""

    source: Literal["existing"]
    """Where the machines come from."""
    user: User
    """Account to log in as. Its private key is the secret `gpu-clusters:ssh-private-key`, else the file
    named by GPU_CLUSTERS_SSH_KEY_FILE, else what the SSH agent holds."""
    machines: tuple[Machine, ...]
    """The machines, one for each node."""


def listed_machines(hosts: object) -> tuple[Machine, ...]:
    """Machines whose addresses stand in the configuration; those of the lab and of Google Cloud do not."""
    return hosts.machines if isinstance(hosts, ExistingHosts) else ()


def listed_addresses(hosts: object) -> Iterator[tuple[Path, str]]:
    """Their addresses, by key below the section."""
    for number, machine in enumerate(listed_machines(hosts)):
        yield ("hosts", "machines", number, "address"), machine.address


class LabHosts(Section):
    """The simulated machines of the lab on this computer, as its inventory lists them."""

    source: Literal["lab"]
    """Where the machines come from."""


Hosts = Annotated[ExistingHosts | LabHosts, Field(discriminator="source")]


class AdoptedMachines(Section):
    """What is taken over when it is not in the state yet, if it is as declared: every difference is refused.

    Once it is in the state this key changes nothing and may go.
    """

    machines: tuple[DnsLabel, ...] = ()
    """Machines on which drivers, RKE2, partitions, the service VM, CDI files and settings may be there."""


class Adopted(AdoptedMachines):
    """What is taken over when it is not in the state yet, if it is as declared: every difference is refused.

    Once it is in the state this key changes nothing and may go.
    """

    tenants: tuple[DnsLabel, ...] = ()
    """Tenants whose Tenancy may be there."""
