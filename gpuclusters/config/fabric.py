"""`service-vm` and `versions`: the VM that runs the fabric manager, and versions that must agree."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict

from gpuclusters.config.base import (
    Address,
    DnsLabel,
    Flag,
    Gib,
    Integer,
    Mib,
    Port,
    Seconds,
    Section,
    Sha256,
    Text,
    Version,
    matches,
    refusal,
)
from gpuclusters.fabric.answers import FABRIC_MANAGER_PORT
from gpuclusters.fabric.manager_config import INTERNAL_PORT, STATE_FILE
from gpuclusters.service_vm.model import (
    BRIDGE,
    DISK_GIB,
    HOST_ADDRESS,
    MEMORY_MIB,
    NAME,
    NETWORK,
    PREFIX_LENGTH,
    VCPUS,
    VM_ADDRESS,
)


def _shared(value: Any) -> Any:
    if value != 1 or isinstance(value, bool):
        raise refusal(
            "gives the whole board to one owner, while a caas cluster shares it",
            "write 1, or leave it out",
        )
    return value


def _failure_mode(value: Any) -> Any:
    if value in (0, 1) and not isinstance(value, bool):
        return value
    raise refusal(
        "is not a failure mode",
        "write 0, which drops the partitions concerned, or 1, which keeps all with less bandwidth",
    )


FailureMode = Annotated[Literal[0, 1], BeforeValidator(_failure_mode)]
StateFile = Annotated[
    Text,
    matches(
        ".{,256}",
        "is longer than the 256 characters that the fabric manager reads",
        "write a shorter path",
    ),
    matches(
        r"/(?!.*(^|/)\.\.(/|$)).*[^/]",
        "is not the absolute path of a file",
        "write for example /var/lib/nvidia-fabricmanager/state",
    ),
    matches(
        "(?!/(tmp|var/tmp|run|var/run|dev/shm)(/|$)).*",
        "is lost when the service VM reboots, and with it which partitions are in use",
        "write a path on a disk: /var/lib/nvidia-fabricmanager/state",
    ),
]
FabricMode = Annotated[Literal[1], BeforeValidator(_shared, json_schema_input_type=Literal[1])]


class VmImage(Section):
    """What the service VM's disk is laid over: UEFI, cloud-init, and as a rule driver and fabric manager."""

    path: (
        Annotated[
            Text,
            matches(
                "/.*[^/]",
                "is not the absolute path of a file",
                "write for example /srv/images/fabric-manager.qcow2",
            ),
        ]
        | None
    ) = None
    """Its file on every machine."""
    url: (
        Annotated[
            Text,
            matches(
                "https?://.*",
                "is not an address that a machine can download from",
                "write one that begins with https://",
            ),
        ]
        | None
    ) = None
    """Where every machine downloads it from, instead of path."""
    sha256: Sha256
    """Its checksum; verified before the first use."""


class ServiceNetwork(Section):
    """The network that each service VM shares with its machine alone; the same addresses on every machine."""

    name: DnsLabel = NETWORK
    """Its name in libvirt."""
    bridge: Annotated[
        Text,
        matches(
            ".{,15}",
            "is longer than the 15 characters that the kernel takes",
            "write a shorter name, or leave it out for br-fm",
        ),
    ] = BRIDGE
    """Its bridge on the machine, 15 characters at most."""
    host_address: Address = IPv4Address(HOST_ADDRESS)
    """The machine's address on it."""
    prefix_length: Annotated[Integer, Field(ge=16, le=30)] = PREFIX_LENGTH
    """Size of its range: 30 has room for the machine and its VM."""


class VmPackages(Section):
    """Packages that the service VM installs at its first boot, if its image does not hold them."""

    repository: Text
    """The repository, as a line of sources.list: `deb URL SUITE`."""
    key: Annotated[str, Strict(), Field(min_length=1, max_length=20_000)]
    """Public key that signs the repository, ASCII-armoured, after `key: |`."""
    proxy: Text
    """HTTP proxy on the machine, at network.host-address: the VM reaches nothing else."""
    packages: Mapping[str, Text]
    """Exact version by package; the fabric manager's and the driver's among them."""


class Firmware(Section):
    """UEFI firmware on the machines, without secure boot."""

    code: Text = "/usr/share/OVMF/OVMF_CODE_4M.fd"
    """Program; the default is where Debian and Ubuntu have it."""
    variables: Text = "/usr/share/OVMF/OVMF_VARS_4M.fd"
    """Template of the variables, of which the VM gets its own copy."""


class ServiceVm(Section):
    """The VM on each machine that holds the NVSwitches and runs the fabric manager for all tenants."""

    image: VmImage | None = None
    """What it boots; the lab's machines have one."""
    name: DnsLabel = NAME
    """Its name in libvirt."""
    vcpus: Annotated[Integer, Field(ge=1, le=64)] = VCPUS
    """Virtual CPUs."""
    memory_mib: Annotated[Mib, Field(ge=1024)] = MEMORY_MIB
    """RAM, in MiB."""
    disk_gib: Annotated[Gib, Field(ge=4, le=4096)] = DISK_GIB
    """Size of its own disk, in GiB."""
    network: ServiceNetwork = Field(default_factory=ServiceNetwork)
    """The network that it shares with its machine."""
    packages: VmPackages | None = None
    """Packages that it installs at its first boot; by default its image holds all of them."""
    firmware: Firmware = Field(default_factory=Firmware)
    """UEFI firmware."""
    fabric_mode: FabricMode = 1
    """FABRIC_MODE: shared NVSwitch."""
    fabric_mode_restart: Flag = True
    """FABRIC_MODE_RESTART: a restarted fabric manager leaves running partitions alone. Needs state-file."""
    state_file: StateFile | None = STATE_FILE
    """STATE_FILE_NAME: on a disk of the service VM that survives its reboot."""
    bind_address: Address = IPv4Address(VM_ADDRESS)
    """FM_CMD_BIND_INTERFACE: the service VM's address on the network it shares with its machine alone. The
    API knows neither authentication nor TLS."""
    port: Port = FABRIC_MANAGER_PORT
    """FM_CMD_PORT_NUMBER: the API's port."""
    internal_port: Port = INTERNAL_PORT
    """STARTING_TCP_PORT: the fabric manager's own traffic."""
    stay_resident_on_failures: Flag = False
    """FM_STAY_RESIDENT_ON_FAILURES: a fabric manager that failed at start keeps its process, and serves
    nothing."""
    access_link_failure_mode: FailureMode = 0
    """ACCESS_LINK_FAILURE_MODE: 0 drops the partitions with the GPU whose links failed; 1 disables the switch
    and its peer, and all partitions go on with less bandwidth."""
    trunk_link_failure_mode: FailureMode = 0
    """TRUNK_LINK_FAILURE_MODE: the same for links between two baseboards; none on eight GPUs."""
    nvswitch_failure_mode: FailureMode = 0
    """NVSWITCH_FAILURE_MODE: the same for a switch that failed."""
    partition_rail_policy: Literal["greedy", "symmetric"] | None = None
    """PARTITION_RAIL_POLICY, on boards since Blackwell."""
    daemonize: Flag = True
    """DAEMONIZE: belongs to a unit of Type=forking, as NVIDIA's package has it."""
    boot_timeout_seconds: Annotated[Seconds, Field(le=3600)] = 300
    """How long it may take from its start to the fabric manager's first answer, in seconds."""
    adopt: Flag = False
    """Take over a domain of that name that is there and is not ours."""


class Versions(Section):
    """Versions that must agree with each other. Every one is a number, never `latest`."""

    kata: Version = "4.1.0"
    """Kata Containers on the machines; its guest image brings the GPU driver."""
    guest_driver: Version | None = None
    """NVIDIA driver in the guest image; by default the one of Kata's own image."""
    fabric_manager: Version = "595.58.03"
    """Fabric manager in the service VM: exactly the guest driver's version."""
