"""`fabricmanager.cfg` of the fabric manager in the service VM, and the file of a custom partition table.

Source: NVIDIA Fabric Manager User Guide, "Fabric Manager Config Options" and "Shared NVSwitch".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from gpuclusters.core import scripts
from gpuclusters.core.section import Address, Flag, Port, Section, Text, matches, refusal
from gpuclusters.fabric.answers import FABRIC_MANAGER_PORT

_RAIL_NAMES = 595
"""First branch whose PARTITION_RAIL_POLICY is a name; 0 and 1 before (Fabric Manager User Guide 595)."""
CONFIG_PATH = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
PARTITIONS_PATH = "/usr/share/nvidia/nvswitch/gpu-clusters-partitions.json"
STATE_FILE = "/var/lib/nvidia-fabricmanager/state"
INTERNAL_PORT = 16000
VM_ADDRESS = "192.168.250.2"


def one_of(choices: tuple[int, ...], case: str) -> BeforeValidator:
    def read(value: Any) -> Any:
        if value in choices and not isinstance(value, bool):
            return value
        raise refusal(case)

    return BeforeValidator(read, json_schema_input_type=Literal[choices])


FailureMode = Annotated[Literal[0, 1], one_of((0, 1), "failure-mode")]
StateFile = Annotated[
    Text,
    matches(".{,256}", "long-state-file"),
    matches(r"/(?!.*(^|/)\.\.(/|$)).*[^/]", "state-file"),
    matches("(?!/(tmp|var/tmp|run|var/run|dev/shm)(/|$)).*", "lost-state-file"),
]


class FabricSettings(Section):
    """What the configuration says of the fabric manager itself."""

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


class FabricManagerSettings(FabricSettings):
    """What the fabric manager is told, and which version it must be."""

    model_config = ConfigDict(validate_by_name=True)

    version: Annotated[Text, matches(r"[0-9]{3,4}(\.[0-9]{1,4}){1,3}", "exact-version")]
    mode: Literal[1] = 1
    """FABRIC_MODE; 1 is shared NVSwitch, the only one that lets one board serve several VMs."""
    restart: bool = True
    """FABRIC_MODE_RESTART: start again without resetting the switches; the client then tells which
    partitions are active."""
    partitions: Mapping[str, tuple[int, ...]] | None = None
    """A custom table: module numbers by partition id; None: the one of the baseboard."""
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
    own = None if settings.partitions is None else PARTITIONS_PATH
    words = settings.model_dump() | {"partitions_file": own}
    values = scripts.manifest("fabric/fabricmanager.yaml", words).items()
    head = "# Managed by gpu-clusters: written when the service VM first boots from its seed.\n"
    flags = ((key, int(v) if isinstance(v, bool) else v) for key, v in values)
    return head + "".join(f"{key}={value}\n" for key, value in flags)


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
