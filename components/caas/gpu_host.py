"""One HGX machine of a `caas` cluster, prepared to hand GPUs to virtual machines.

Owns: the CDI spec of its GPUs, the active NVSwitch partitions of its board, the drop-ins of kubelet and
containerd. Deliberately does not own: the operating system, the service VM, Kubernetes itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_command import remote

from components import script
from components.host_connection import HostConnection
from gpuclusters.domain import drop_ins
from gpuclusters.providers.cdi_spec import CdiSpec
from gpuclusters.providers.fabric_partitions import FabricPartitions
from gpuclusters.providers.host_file import HostFile


@dataclass(frozen=True, kw_only=True)
class GpuHostArgs:
    """What one machine needs to know."""

    connection: HostConnection
    private_key: pulumi.Input[str] | None
    baseboard: str
    gpus: Mapping[int, str]
    """PCI address by module number."""
    partitions: Sequence[int] | None
    """Numbers of the partitions that are active while nobody has them, in the board's own table; None if
    leases alone decide."""
    fabric_manager_host: str
    """Address of the fabric manager's API as seen from the machine."""
    cdi_kind: str
    """Kind of the CDI devices; equal to the resource name, else Kata cannot find them."""
    kubelet_drop_in: str
    containerd_drop_in: str
    runtime_units: Sequence[str] = ("containerd.service", "kubelet.service")
    """Units that read the drop-ins, in the order of their restart."""


class GpuHost(pulumi.ComponentResource):
    """A machine whose eight GPUs are described by CDI and cut into NVSwitch partitions."""

    active_partitions: pulumi.Output[Sequence[int]]
    """Numbers of the declared partitions that the fabric manager says are active."""

    cdi_devices: pulumi.Output[Sequence[str]]
    """Qualified CDI names, for example `nvidia.com/pgpu=1`."""

    def __init__(
        self, name: str, args: GpuHostArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:GpuHost", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        connection = args.connection.as_input()

        cdi_spec = CdiSpec(
            f"{name}-cdi",
            connection=connection,
            path=f"/etc/cdi/{args.cdi_kind.replace('/', '-')}.json",
            kind=args.cdi_kind,
            devices=[
                {"name": str(module), "pci_address": address}
                for module, address in sorted(args.gpus.items())
            ],
            opts=child,
        )
        self.active_partitions = pulumi.Output.from_input([])
        if args.partitions is not None:
            fabric = FabricPartitions(
                f"{name}-fabric",
                connection=connection,
                board="board-0",
                baseboard=args.baseboard,
                partitions=list(args.partitions),
                gpus={str(module): address for module, address in sorted(args.gpus.items())},
                fabric_manager_host=args.fabric_manager_host,
                opts=child,
            )
            self.active_partitions = fabric.active
        files = [
            HostFile(f"{name}-{role}", connection=connection, path=path, content=text, opts=child)
            for role, path, text in (
                ("kubelet", drop_ins.KUBELET_DROP_IN, args.kubelet_drop_in),
                ("containerd", drop_ins.CONTAINERD_DROP_IN, args.containerd_drop_in),
            )
        ]
        remote.Command(
            f"{name}-reload-runtime",
            connection=args.connection.command_connection(args.private_key),
            create=f"sudo -n sh -s -- {shlex.join(args.runtime_units)}",
            stdin=script.read("caas/reload-runtime.sh"),
            # What the files should hold, which a preview knows, not what was found: a file that is put
            # back is again what the units have read.
            triggers=[args.containerd_drop_in, args.kubelet_drop_in],
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(parent=self, depends_on=files, delete_before_replace=True),
        )

        self.cdi_devices = cdi_spec.qualified_names
        self.register_outputs(
            {"active_partitions": self.active_partitions, "cdi_devices": self.cdi_devices}
        )
