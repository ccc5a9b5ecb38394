"""`service-vm` and `versions`: the VM that runs the fabric manager, and versions that must agree."""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from gpuclusters.config.base import Flag, Mib, Port, Section, Text, checked, refusal


class FabricMode(IntEnum):
    """FABRIC_MODE of the fabric manager."""

    BARE_METAL = 0
    SHARED = 1
    VGPU = 2


def _address(value: Any) -> Any:
    if isinstance(value, IPv4Address):
        return value
    try:
        if isinstance(value, str):
            return IPv4Address(value)
    except ValueError:
        pass
    raise refusal(
        "is not an IPv4 address", 'write the address in quotes, for example "192.168.250.2"'
    )


def _mode(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value in (0, 1, 2):
        return FabricMode(value)
    raise refusal("is not a mode of the fabric manager", "write 1, shared NVSwitch")


Address = Annotated[IPv4Address, BeforeValidator(_address, json_schema_input_type=str)]
Mode = Annotated[FabricMode, BeforeValidator(_mode, json_schema_input_type=Literal[0, 1, 2])]


class ServiceVm(Section):
    """The VM on each machine that holds the NVSwitches and runs the fabric manager for all tenants."""

    fabric_mode: Annotated[Mode, checked(3)] = FabricMode.SHARED
    """FABRIC_MODE: 1, shared NVSwitch. 0 and 2 serve one owner of the whole board."""
    fabric_mode_restart: Annotated[Flag, checked(3)] = True
    """FABRIC_MODE_RESTART: a restarted fabric manager leaves running partitions alone. Needs state-file."""
    state_file: Annotated[Text | None, checked(3)] = "/var/lib/nvidia-fabricmanager/state"
    """STATE_FILE_NAME: on a disk of the service VM that survives its reboot."""
    bind_address: Address | None = None
    """FM_CMD_BIND_INTERFACE: the service VM's address on the network it shares with its host alone. The
    API knows neither authentication nor TLS. Stated for existing hosts; 127.0.0.1 in the lab."""
    port: Annotated[Port, checked(3)] = 6666
    """FM_CMD_PORT_NUMBER: the API's port."""
    internal_port: Annotated[Port, checked(3)] = 16000
    """STARTING_TCP_PORT: the fabric manager's own traffic."""
    memory_mib: Annotated[Mib, checked(13)] = 4096
    """RAM of the service VM, in MiB."""


class Versions(Section):
    """Versions that must agree with each other. Every one is a number, never `latest`."""

    kata: Annotated[Text, checked(2)] = "4.1.0"
    """Kata Containers on the machines; its guest image brings the GPU driver."""
    guest_driver: Annotated[Text | None, checked(2)] = None
    """NVIDIA driver in the guest image; by default the one of Kata's own image."""
    fabric_manager: Annotated[Text, checked(2)] = "595.58.03"
    """Fabric manager in the service VM: exactly the guest driver's version."""
    cdi: Annotated[Text, checked(8)] = "0.5.0"
    """Version of the CDI specs on the machines."""
