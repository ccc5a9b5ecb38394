"""`fabricmanager.cfg` of the fabric manager in the service VM, and the file of a custom partition table.

Source: NVIDIA Fabric Manager User Guide, "Fabric Manager Config Options" and "Shared NVSwitch".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from gpuclusters.core.model import Strict, matches
from gpuclusters.fabric.answers import FABRIC_MANAGER_PORT
from gpuclusters.host.model import check_path

_RAIL_NAMES = 595
"""First branch whose PARTITION_RAIL_POLICY is a name; 0 and 1 before (Fabric Manager User Guide 595)."""
CONFIG_PATH = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
PARTITIONS_PATH = "/usr/share/nvidia/nvswitch/gpu-clusters-partitions.json"
STATE_FILE = "/var/lib/nvidia-fabricmanager/state"
INTERNAL_PORT = 16000

Port = Annotated[int, Field(ge=1, le=65535)]
FailureMode = Literal[0, 1]


def check_address(text: str) -> str:
    """An IPv4 address; which one a VM may have, the rules of the configuration say."""
    try:
        return str(IPv4Address(text))
    except ValueError as error:
        raise ValueError("write an IPv4 address, like '192.168.250.1'") from error


class FabricManagerSettings(Strict):
    """What the fabric manager is told, and which version it must be."""

    version: Annotated[
        str,
        matches(r"[0-9]{3,4}(\.[0-9]{1,4}){1,3}", "write the exact version, like '595.58.03'"),
    ]
    bind_address: Annotated[str, AfterValidator(check_address)] = "192.168.250.2"
    port: Port = FABRIC_MANAGER_PORT
    internal_port: Port = INTERNAL_PORT
    mode: Literal[1] = 1
    """FABRIC_MODE; 1 is shared NVSwitch, the only one that lets one board serve several VMs."""
    restart: bool = True
    """FABRIC_MODE_RESTART: start again without resetting the switches; the client then tells which
    partitions are active."""
    state_file: Annotated[str, AfterValidator(check_path)] | None = STATE_FILE
    stay_resident_on_failures: bool = False
    """FM_STAY_RESIDENT_ON_FAILURES: the process lives on after a failed start, and serves nothing."""
    access_link_failure_mode: FailureMode = 0
    """0: partitions with the failed GPU are dropped; 1: its switch (and the peer) is disabled."""
    trunk_link_failure_mode: FailureMode = 0
    """As above, for links between two baseboards; without effect on eight GPUs."""
    nvswitch_failure_mode: FailureMode = 0
    """0: partitions that need the failed switch are dropped; 1: all go on with less bandwidth."""
    partition_rail_policy: Literal["greedy", "symmetric"] | None = None
    """PARTITION_RAIL_POLICY; boards since Blackwell. Names from branch 595 on, numbers before."""
    partitions: Mapping[str, tuple[int, ...]] | None = None
    """A custom table: module numbers by partition id; None: the one of the baseboard."""
    daemonize: bool = True
    """DAEMONIZE: 1 belongs to a unit of Type=forking, as NVIDIA's package has it."""
    log_level: Annotated[int, Field(ge=0, le=4)] = 4

    @model_validator(mode="after")
    def _rail_policy_has_a_name(self) -> FabricManagerSettings:
        branch = int(self.version.partition(".")[0])
        if self.partition_rail_policy is not None and branch < _RAIL_NAMES:
            raise ValueError(
                f"partition_rail_policy: is a number before fabric manager {_RAIL_NAMES}, and {self.version} "
                "would not read a name; leave it out, or take a newer fabric manager"
            )
        return self


def render(settings: FabricManagerSettings) -> str:
    """The text of fabricmanager.cfg."""
    values: dict[str, str | int | None] = {
        "LOG_LEVEL": settings.log_level,
        "LOG_FILE_NAME": "/var/log/fabricmanager.log",
        "LOG_APPEND_TO_LOG": 1,
        "LOG_USE_SYSLOG": 0,
        "DAEMONIZE": int(settings.daemonize),
        "BIND_INTERFACE_IP": "127.0.0.1",
        "STARTING_TCP_PORT": settings.internal_port,
        "FABRIC_MODE": settings.mode,
        "FABRIC_MODE_RESTART": int(settings.restart),
        "FM_CMD_BIND_INTERFACE": settings.bind_address,
        "FM_CMD_PORT_NUMBER": settings.port,
        "FM_STAY_RESIDENT_ON_FAILURES": int(settings.stay_resident_on_failures),
        "ACCESS_LINK_FAILURE_MODE": settings.access_link_failure_mode,
        "TRUNK_LINK_FAILURE_MODE": settings.trunk_link_failure_mode,
        "NVSWITCH_FAILURE_MODE": settings.nvswitch_failure_mode,
        "TOPOLOGY_FILE_PATH": "/usr/share/nvidia/nvswitch",
        "STATE_FILE_NAME": settings.state_file,
        "PARTITION_RAIL_POLICY": settings.partition_rail_policy,
        "SHARED_PARTITION_DEFINITION_FILE": PARTITIONS_PATH
        if settings.partitions is not None
        else None,
    }
    head = "# Managed by gpu-clusters: written when the service VM first boots from its seed.\n"
    stated = (f"{key}={value}\n" for key, value in values.items() if value is not None)
    return head + "".join(stated)


def render_partitions(partitions: Mapping[str, tuple[int, ...]]) -> str:
    """The file of a custom partition table; the fabric manager reads it once, at start."""
    document = {
        "version": "1",
        "name": "gpu-clusters",
        "time": "1970-01-01 00:00:00",
        "partitionInfo": [
            {"partitionId": int(number), "gpuModuleIds": list(modules)}
            for number, modules in sorted(partitions.items(), key=lambda item: int(item[0]))
        ],
    }
    return json.dumps(document, indent=2) + "\n"
