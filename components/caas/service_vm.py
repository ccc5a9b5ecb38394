"""The VM on an HGX machine that holds its NVSwitches and runs the fabric manager.

One resource, without a component of its own: it belongs to the machine's, and resources per machine count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.host_connection import HostConnection
from gpuclusters.fabric.table import Board
from gpuclusters.service_vm.resource import ServiceVm


@dataclass(frozen=True, kw_only=True)
class ServiceVmArgs:
    """What the VM of one machine is made of."""

    connection: HostConnection
    board: Board
    """Its switches and extra functions enter the VM; who holds a GPU is asked before the VM restarts."""
    settings: Mapping[str, Any]
    """The rest of the resource's inputs, the same for every machine: image, fabric_manager, vcpus, …"""


def service_vm(
    name: str, args: ServiceVmArgs, opts: pulumi.ResourceOptions | None = None
) -> ServiceVm:
    """Declare the service VM of the machine `name`."""
    return ServiceVm(
        f"{name}-service-vm",
        connection=args.connection.as_input(),
        switches=args.board.switches,
        extra_functions=args.board.extra_functions,
        gpus={str(module): address for module, address in sorted(args.board.gpus.items())},
        opts=opts,
        **args.settings,
    )
