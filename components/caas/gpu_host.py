"""One HGX machine of a `caas` cluster, from a Linux with SSH to one that hands GPUs to virtual machines.

Deliberately does not own: the operating system, Kubernetes itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_command import remote

from components.host_connection import HostConnection
from components.kubernetes_objects import after, kept
from gpuclusters.boot.model import MachinePreparation
from gpuclusters.boot.resource import HostBoot
from gpuclusters.cdi.model import VfioBackend, spec_path
from gpuclusters.cdi.resource import CdiSpec
from gpuclusters.core import scripts
from gpuclusters.fabric.resource import FabricPartitions
from gpuclusters.fabric.table import BOARDS, Baseboard, Board
from gpuclusters.host import drop_ins
from gpuclusters.host.resource import HostFile
from gpuclusters.preflight.model import Expects
from gpuclusters.preflight.resource import Preflight
from gpuclusters.service_vm.resource import ServiceVm
from gpuclusters.vfio.resource import VfioBinding

_UNITS = ("containerd.service", "kubelet.service")
"""Units that read the drop-ins, in the order of their restart."""


@dataclass(frozen=True, kw_only=True)
class HostPreparationArgs:
    connection: HostConnection
    private_key: pulumi.Input[str] | None
    wanted: MachinePreparation
    adopt: bool = False
    """Whether what is on the machine already is taken over, if it is as declared."""


class HostPreparation(pulumi.ComponentResource):
    """Three resources for each machine, however many GPUs it has."""

    def __init__(
        self, name: str, args: HostPreparationArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:HostPreparation", name, None, opts)
        child, connection = pulumi.ResourceOptions(parent=self), args.connection.as_input()
        told = args.wanted
        wanted = shlex.join(f"{p}={v}" if v else p for p, v in sorted(told.packages.items()))
        packages = remote.Command(
            f"{name}-packages",
            connection=args.connection.command_connection(args.private_key),
            create=f"sudo -n sh -s -- {wanted}",
            update=f"sudo -n sh -s -- {wanted}",
            stdin=scripts.read("host/install_packages.sh"),
            add_previous_output_in_env=False,
            opts=child,
        )
        boot = HostBoot(
            f"{name}-boot",
            connection=connection,
            kernel_arguments=list(told.kernel_arguments),
            files=dict(told.files),
            huge_pages_1g={str(n): c for n, c in sorted(told.huge_pages_1g.items())},
            reboot="allow" if told.may_reboot else "refuse",
            reboot_timeout_seconds=told.reboot_timeout_seconds,
            adopt=args.adopt,
            opts=after(packages, opts=child),
        )
        VfioBinding(
            f"{name}-vfio",
            connection=connection,
            functions=[function.model_dump(mode="json") for function in told.functions],
            adopt=args.adopt,
            opts=after(boot, opts=child),
        )
        self.register_outputs({"boot_id": boot.boot_id})


@dataclass(frozen=True, kw_only=True)
class RuntimeDropIns:
    """What kubelet and containerd of a machine are told beside what they know already."""

    kubelet: str
    containerd: str


@dataclass(frozen=True, kw_only=True)
class GpuHostArgs:
    preparation: HostPreparationArgs
    """How it is reached, and what it must boot with."""
    expects: Expects
    """What it must be once prepared."""
    board: Board
    """Switches and extra functions enter the service VM; who holds a GPU is asked before it restarts."""
    service_vm: Mapping[str, Any]
    """The rest of the inputs of `ServiceVm`, most of them the same for every machine."""
    baseboard: str
    table: Mapping[str, Sequence[int]] | None
    """The board's own table of partitions, where it is not the baseboard's."""
    partitions: Sequence[int] | None
    """Partitions that stay active; None if there is a `layout`, or leases alone decide."""
    layout: Sequence[int] | None = None
    """Sizes instead of numbers: cut with the fewest switches, around partitions that a VM runs on."""
    fabric_manager_host: str
    """Address of the fabric manager's API as seen from the machine."""
    guest_driver: str
    """Version of the driver in the guests, to which the fabric manager's must be equal."""
    cdi_kind: str
    """Kind of the CDI devices; equal to the resource name, else Kata cannot find them."""
    vfio: str
    """Through which device nodes VMs get GPUs: `legacy`, `iommufd` or `auto`."""
    protect: bool = False
    """Whether Pulumi refuses to delete the active partitions."""
    drop_ins: RuntimeDropIns | None
    """None where somebody else configures kubelet and containerd, as RKE2 does."""


class GpuHost(pulumi.ComponentResource):
    """A machine whose eight GPUs are described by CDI and cut into NVSwitch partitions."""

    active_partitions: pulumi.Output[Sequence[int]]
    """Numbers of the declared partitions that the fabric manager says are active."""

    cut: pulumi.Output[Sequence[int]]
    """Partitions into which the board was cut, whoever has them now; empty if leases alone decide."""

    cdi_devices: pulumi.Output[Sequence[str]]
    """Qualified CDI names, for example `nvidia.com/pgpu=1`."""

    def __init__(
        self, name: str, args: GpuHostArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:GpuHost", name, None, opts)
        child, adopt = pulumi.ResourceOptions(parent=self), args.preparation.adopt
        connection = args.preparation.connection.as_input()
        gpus = {str(module): address for module, address in sorted(args.board.gpus.items())}
        module_map = BOARDS[Baseboard(args.baseboard)].module_map.value

        prepared = Preflight(
            f"{name}-ready",
            connection=connection,
            stage="prepared",
            expects=args.expects.model_dump(mode="json"),
            opts=after(HostPreparation(name, args.preparation, child), opts=child),
        )
        cdi_spec = CdiSpec(
            f"{name}-cdi",
            connection=connection,
            path=spec_path(args.cdi_kind, VfioBackend(args.vfio)),
            kind=args.cdi_kind,
            devices=[{"name": module, "pci_address": pci} for module, pci in gpus.items()],
            vfio=args.vfio,
            module_map=module_map,
            adopt=adopt,
            opts=after(prepared, opts=child),
        )
        vm = ServiceVm(
            f"{name}-service-vm",
            connection=connection,
            switches=args.board.switches,
            extra_functions=args.board.extra_functions,
            gpus=gpus,
            opts=after(prepared, opts=child),
            **args.service_vm,
        )
        ready: pulumi.Resource = vm
        self.active_partitions = self.cut = pulumi.Output.from_input([])
        if args.partitions is not None or args.layout is not None:
            ready = fabric = FabricPartitions(
                f"{name}-fabric",
                connection=connection,
                board="board-0",
                baseboard=args.baseboard,
                partitions=None if args.partitions is None else list(args.partitions),
                layout=None if args.layout is None else list(args.layout),
                table=args.table,
                gpus=gpus,
                fabric_manager_host=args.fabric_manager_host,
                fabric_manager_version=vm.fabric_manager_version,
                fabric_manager_run=vm.run,
                guest_driver=args.guest_driver,
                module_map=module_map,
                adopt=adopt,
                opts=kept(after(vm, opts=child), protect=args.protect),
            )
            self.active_partitions, self.cut = fabric.active, fabric.applied
        if args.drop_ins is not None:
            self._reload(name, args.preparation, args.drop_ins, prepared, [cdi_spec, ready])
        self.cdi_devices = cdi_spec.qualified_names
        self.register_outputs(
            {"active_partitions": self.active_partitions, "cdi_devices": self.cdi_devices}
        )

    def _reload(
        self,
        name: str,
        args: HostPreparationArgs,
        texts: RuntimeDropIns,
        prepared: pulumi.Resource,
        ready: Sequence[pulumi.Resource],
    ) -> None:
        child = pulumi.ResourceOptions(parent=self)
        written = [
            HostFile(
                f"{name}-{role}",
                connection=args.connection.as_input(),
                path=path,
                content=text,
                adopt=args.adopt or None,
                opts=after(prepared, opts=child),
            )
            for role, path, text in (
                ("kubelet", drop_ins.KUBELET_DROP_IN, texts.kubelet),
                ("containerd", drop_ins.CONTAINERD_DROP_IN, texts.containerd),
            )
        ]
        remote.Command(
            f"{name}-reload-runtime",
            connection=args.connection.command_connection(args.private_key),
            create=f"sudo -n sh -s -- {shlex.join(_UNITS)}",
            stdin=scripts.read("cdi/reload-runtime.sh"),
            # What the files should hold, which a preview knows, not what was found: a file that is put
            # back is again what the units have read.
            triggers=[texts.containerd, texts.kubelet],
            add_previous_output_in_env=False,
            opts=after(
                *written,
                *ready,
                opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
            ),
        )
