"""One HGX machine of a `caas` cluster, from a Linux with SSH to one that hands GPUs to virtual machines.

Owns: what the machine boots with, its service VM, the CDI spec of its GPUs, the active NVSwitch partitions
of its board, the drop-ins of kubelet and containerd. Deliberately does not own: the operating system,
Kubernetes itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_command import remote

from components.caas.host_preparation import HostPreparation, HostPreparationArgs
from components.caas.service_vm import ServiceVmArgs, service_vm
from components.host_connection import HostConnection
from gpuclusters.cdi.model import VfioBackend, spec_path
from gpuclusters.cdi.resource import CdiSpec
from gpuclusters.core import scripts
from gpuclusters.fabric.resource import FabricPartitions
from gpuclusters.fabric.table import BOARDS, Baseboard
from gpuclusters.host import drop_ins
from gpuclusters.host.resource import HostFile
from gpuclusters.providers.preflight import Preflight


@dataclass(frozen=True, kw_only=True)
class RuntimeDropIns:
    """What kubelet and containerd of a machine are told beside what they know already."""

    kubelet: str
    containerd: str
    units: Sequence[str] = ("containerd.service", "kubelet.service")
    """Units that read them, in the order of their restart."""


@dataclass(frozen=True, kw_only=True)
class GpuHostArgs:
    """What one machine needs to know."""

    preparation: HostPreparationArgs
    """How it is reached, and what it must boot with."""
    expects: Mapping[str, Any]
    """What it must be once prepared, as inputs of `Preflight`."""
    service_vm: ServiceVmArgs
    baseboard: str
    table: Mapping[str, Sequence[int]] | None
    """The board's own table of partitions, where it is not the baseboard's."""
    partitions: Sequence[int] | None
    """Numbers of the partitions that are active while nobody has them, in the board's own table; None if
    there is a `layout`, or leases alone decide."""
    layout: Sequence[int] | None = None
    """Sizes instead of numbers: cut where it takes the fewest switches on the board as it is, and around
    partitions that a VM runs on."""
    fabric_manager_host: str
    """Address of the fabric manager's API as seen from the machine."""
    guest_driver: str
    """Version of the driver in the guests, to which the fabric manager's must be equal."""
    cdi_kind: str
    """Kind of the CDI devices; equal to the resource name, else Kata cannot find them."""
    vfio: str
    """Through which device nodes VMs get GPUs: `legacy`, `iommufd` or `auto`."""
    protect_partitions: bool = False
    """Whether Pulumi refuses to delete the active partitions."""
    adopt: bool = False
    """Whether what is on the machine already is taken over, if it is as declared."""
    drop_ins: RuntimeDropIns | None
    """None where somebody else configures kubelet and containerd, as RKE2 does."""

    @property
    def connection(self) -> HostConnection:
        """How the machine is reached."""
        return self.preparation.connection


class GpuHost(pulumi.ComponentResource):
    """A machine whose eight GPUs are described by CDI and cut into NVSwitch partitions."""

    active_partitions: pulumi.Output[Sequence[int]]
    """Numbers of the declared partitions that the fabric manager says are active."""

    cut: pulumi.Output[Sequence[int]]
    """Numbers of the partitions into which the board was cut, whoever has them now; empty if leases alone
    decide."""

    cdi_devices: pulumi.Output[Sequence[str]]
    """Qualified CDI names, for example `nvidia.com/pgpu=1`."""

    ready: Sequence[pulumi.Resource]
    """What must be there before Kubernetes, or anything in it, uses the machine's GPUs."""

    def __init__(
        self, name: str, args: GpuHostArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:GpuHost", name, None, opts)
        connection = args.connection.as_input()
        gpus = args.service_vm.board.gpus
        module_map = BOARDS[Baseboard(args.baseboard)].module_map.value

        preparation = HostPreparation(name, args.preparation, pulumi.ResourceOptions(parent=self))
        prepared = Preflight(
            f"{name}-ready",
            connection=connection,
            stage="prepared",
            expects=args.expects,
            opts=self._after(preparation.ready),
        )
        cdi_spec = CdiSpec(
            f"{name}-cdi",
            connection=connection,
            path=spec_path(args.cdi_kind, VfioBackend(args.vfio)),
            kind=args.cdi_kind,
            devices=[
                {"name": str(module), "pci_address": address}
                for module, address in sorted(gpus.items())
            ],
            vfio=args.vfio,
            module_map=module_map,
            adopt=args.adopt,
            opts=self._after(prepared),
        )
        vm = service_vm(name, args.service_vm, self._after(prepared))
        ready: pulumi.Resource = vm
        self.active_partitions = self.cut = pulumi.Output.from_input([])
        if args.partitions is not None or args.layout is not None:
            fabric = FabricPartitions(
                f"{name}-fabric",
                connection=connection,
                board="board-0",
                baseboard=args.baseboard,
                partitions=None if args.partitions is None else list(args.partitions),
                layout=None if args.layout is None else list(args.layout),
                table=args.table,
                gpus={str(module): address for module, address in sorted(gpus.items())},
                fabric_manager_host=args.fabric_manager_host,
                fabric_manager_version=vm.fabric_manager_version,
                fabric_manager_run=vm.run,
                guest_driver=args.guest_driver,
                module_map=module_map,
                adopt=args.adopt or None,
                opts=pulumi.ResourceOptions(
                    parent=self, depends_on=[vm], protect=args.protect_partitions or None
                ),
            )
            self.active_partitions, self.cut = fabric.active, fabric.applied
            ready = fabric
        self.ready = [cdi_spec, ready]
        if args.drop_ins is not None:
            self.ready = [self._reload(name, args, args.drop_ins, prepared)]

        self.cdi_devices = cdi_spec.qualified_names
        self.register_outputs(
            {"active_partitions": self.active_partitions, "cdi_devices": self.cdi_devices}
        )

    def _reload(
        self,
        name: str,
        args: GpuHostArgs,
        texts: RuntimeDropIns,
        prepared: pulumi.Resource,
    ) -> pulumi.Resource:
        files = [
            HostFile(
                f"{name}-{role}",
                connection=args.connection.as_input(),
                path=path,
                content=text,
                adopt=args.adopt,
                opts=self._after(prepared),
            )
            for role, path, text in (
                ("kubelet", drop_ins.KUBELET_DROP_IN, texts.kubelet),
                ("containerd", drop_ins.CONTAINERD_DROP_IN, texts.containerd),
            )
        ]
        return remote.Command(
            f"{name}-reload-runtime",
            connection=args.connection.command_connection(args.preparation.private_key),
            create=f"sudo -n sh -s -- {shlex.join(texts.units)}",
            stdin=scripts.read("cdi/reload-runtime.sh"),
            # What the files should hold, which a preview knows, not what was found: a file that is put
            # back is again what the units have read.
            triggers=[texts.containerd, texts.kubelet],
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[*files, *self.ready], delete_before_replace=True
            ),
        )

    def _after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(resources))
