"""One HGX machine of a `caas` cluster, from a Linux with SSH to one that hands GPUs to virtual machines.

Deliberately does not own: the operating system, Kubernetes itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.component import Component, Told
from components.host_connection import HostConnection
from components.kubernetes_objects import after, kept
from gpuclusters.boot.model import MachinePreparation
from gpuclusters.boot.resource import HostBoot
from gpuclusters.cdi.model import VfioBackend, spec_path
from gpuclusters.cdi.resource import CdiSpec
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


class HostPreparation(Component, module="caas"):
    """Three resources for each machine, however many GPUs it has."""

    connection: HostConnection
    private_key: pulumi.Input[str] | None
    wanted: MachinePreparation
    adopt: bool = False
    """Whether what is on the machine already is taken over, if it is as declared."""

    def declare(self) -> Told:
        name, child = self._name, self.child
        connection, told = self.connection.as_input(), self.wanted
        wanted = [f"{p}={v}" if v else p for p, v in sorted(told.packages.items())]
        packages = self.connection.root_script(
            f"{name}-packages", self.private_key, "host/install_packages.sh", wanted, child
        )
        boot = HostBoot(
            f"{name}-boot",
            connection=connection,
            kernel_arguments=list(told.kernel_arguments),
            files=dict(told.files),
            huge_pages_1g={str(n): c for n, c in sorted(told.huge_pages_1g.items())},
            reboot="allow" if told.may_reboot else "refuse",
            reboot_timeout_seconds=told.reboot_timeout_seconds,
            adopt=self.adopt,
            opts=after(packages, opts=child),
        )
        VfioBinding(
            f"{name}-vfio",
            connection=connection,
            functions=[function.model_dump(mode="json") for function in told.functions],
            adopt=self.adopt,
            opts=after(boot, opts=child),
        )
        return {"boot_id": boot.boot_id}


@dataclass(frozen=True, kw_only=True)
class RuntimeDropIns:
    """What kubelet and containerd of a machine are told beside what they know already."""

    kubelet: str
    containerd: str


class GpuHost(Component, module="caas"):
    """A machine whose eight GPUs are described by CDI and cut into NVSwitch partitions."""

    connection: HostConnection
    private_key: pulumi.Input[str] | None
    wanted: MachinePreparation
    """What it must boot with."""
    adopt: bool
    """Whether what is on the machine already is taken over, if it is as declared."""
    expects: Expects
    """What it must be once prepared."""
    board: Board
    """Switches and extra functions enter the service VM; who holds a GPU is asked before it restarts."""
    service_vm: Mapping[str, Any]
    """The rest of the inputs of `ServiceVm`, most of them the same for every machine."""
    baseboard: str
    fabric: Mapping[str, Any] | None
    """The rest of the inputs of `FabricPartitions`; None if leases alone decide which are active."""
    cdi_kind: str
    """Kind of the CDI devices; equal to the resource name, else Kata cannot find them."""
    vfio: str
    """Through which device nodes VMs get GPUs: `legacy`, `iommufd` or `auto`."""
    protect: bool = False
    """Whether Pulumi refuses to delete the active partitions."""
    drop_ins: RuntimeDropIns | None
    """None where somebody else configures kubelet and containerd, as RKE2 does."""

    active_partitions: pulumi.Output[Sequence[int]] = field(init=False)
    """Numbers of the declared partitions that the fabric manager says are active."""

    cut: pulumi.Output[Sequence[int]] = field(init=False)
    """Partitions into which the board was cut, whoever has them now; empty if leases alone decide."""

    cdi_devices: pulumi.Output[Sequence[str]] = field(init=False)
    """Qualified CDI names, for example `nvidia.com/pgpu=1`."""

    def declare(self) -> Told:
        name, child = self._name, self.child
        adopt, connection = self.adopt, self.connection.as_input()
        gpus = {str(module): address for module, address in sorted(self.board.gpus.items())}
        module_map = BOARDS[Baseboard(self.baseboard)].module_map.value

        first = HostPreparation(
            name,
            child,
            connection=self.connection,
            private_key=self.private_key,
            wanted=self.wanted,
            adopt=adopt,
        )
        prepared = Preflight(
            f"{name}-ready",
            connection=connection,
            stage="prepared",
            expects=self.expects.model_dump(mode="json"),
            opts=after(first, opts=child),
        )
        cdi_spec = CdiSpec(
            f"{name}-cdi",
            connection=connection,
            path=spec_path(self.cdi_kind, VfioBackend(self.vfio)),
            kind=self.cdi_kind,
            devices=[{"name": module, "pci_address": pci} for module, pci in gpus.items()],
            vfio=self.vfio,
            module_map=module_map,
            adopt=adopt,
            opts=after(prepared, opts=child),
        )
        vm = ServiceVm(
            f"{name}-service-vm",
            connection=connection,
            switches=self.board.switches,
            extra_functions=self.board.extra_functions,
            gpus=gpus,
            opts=after(prepared, opts=child),
            **self.service_vm,
        )
        ready: pulumi.Resource = vm
        self.active_partitions = self.cut = pulumi.Output.from_input([])
        if self.fabric is not None:
            ready = fabric = FabricPartitions(
                f"{name}-fabric",
                connection=connection,
                board="board-0",
                baseboard=self.baseboard,
                gpus=gpus,
                fabric_manager_version=vm.fabric_manager_version,
                fabric_manager_run=vm.run,
                module_map=module_map,
                adopt=adopt,
                opts=kept(after(vm, opts=child), protect=self.protect),
                **self.fabric,
            )
            self.active_partitions, self.cut = fabric.active, fabric.applied
        if self.drop_ins is not None:
            self._reload(self.drop_ins, prepared, [cdi_spec, ready])
        self.cdi_devices = cdi_spec.qualified_names
        return {"active_partitions": self.active_partitions, "cdi_devices": self.cdi_devices}

    def _reload(
        self, texts: RuntimeDropIns, prepared: pulumi.Resource, ready: Sequence[pulumi.Resource]
    ) -> None:
        name, child = self._name, self.child
        written = [
            HostFile(
                f"{name}-{role}",
                connection=self.connection.as_input(),
                path=path,
                content=text,
                adopt=self.adopt or None,
                opts=after(prepared, opts=child),
            )
            for role, path, text in (
                ("kubelet", drop_ins.KUBELET_DROP_IN, texts.kubelet),
                ("containerd", drop_ins.CONTAINERD_DROP_IN, texts.containerd),
            )
        ]
        again = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        self.connection.root_script(
            f"{name}-reload-runtime",
            self.private_key,
            "cdi/reload-runtime.sh",
            _UNITS,
            after(*written, *ready, opts=again),
            # What the files should hold, which a preview knows, not what was found: a file that is put
            # back is again what the units have read.
            triggers=[texts.containerd, texts.kubelet],
        )
