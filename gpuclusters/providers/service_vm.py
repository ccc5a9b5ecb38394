"""The VM on a host that holds its NVSwitches and runs the fabric manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import reconcile_service_vm, service_vm_health
from gpuclusters.domain.service_vm import MEMORY_MIB, NAME, VCPUS, ServiceVmInputs
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.ssh import SshHost


class ServiceVmProvider(KeptProvider[ServiceVmInputs]):
    """Keeps one VM; ours carries a mark in its metadata. It never restarts while a GPU is held."""

    model = ServiceVmInputs
    changes_machine = True
    identity = frozenset({"connection.host", "name", "network.name", "network.bridge"})

    def ensure(self, inputs: ServiceVmInputs, before: Properties) -> Properties:
        """Define, start and wait for the fabric manager."""
        from gpuclusters.adapters.service_vm import scripts

        reached = host(inputs.connection, self.ssh_key)
        with reached.exclusive:
            outcome = reconcile_service_vm.ensure(
                inputs, _ports(inputs, reached), scripts(), known=bool(before)
            )
        return _outputs(inputs, outcome)

    def differences(self, inputs: ServiceVmInputs) -> Sequence[str]:
        """Of a domain that is there."""
        from gpuclusters.adapters.service_vm import SshServiceVm, scripts

        reached = SshServiceVm(host(inputs.connection, self.ssh_key), inputs)
        return reconcile_service_vm.differences(inputs, reached, scripts())

    def observe(self, inputs: ServiceVmInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The VM as it is, and how it differs from what it should be."""
        from gpuclusters.adapters.service_vm import scripts

        reached = host(inputs.connection, self.ssh_key)
        outcome = reconcile_service_vm.observe(inputs, _ports(inputs, reached), scripts())
        return None if outcome is None else Live(_outputs(inputs, outcome), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found it different, or its fabric manager silent."""
        return bool(outputs.get("drift"))

    def remove(self, inputs: ServiceVmInputs, before: Properties) -> None:  # noqa: ARG002
        """Shut it down and remove it, if nobody needs it."""
        reached = host(inputs.connection, self.ssh_key)
        with reached.exclusive:
            reconcile_service_vm.remove(inputs, _ports(inputs, reached))


def _ports(inputs: ServiceVmInputs, reached: SshHost) -> reconcile_service_vm.ServiceVmPorts:
    from gpuclusters.adapters.fabric_manager import SshFabricManager
    from gpuclusters.adapters.here import StderrReporter, SystemClock
    from gpuclusters.adapters.service_vm import SshServiceVm
    from gpuclusters.host.remote import SshPciDevices

    return reconcile_service_vm.ServiceVmPorts(
        SshServiceVm(reached, inputs),
        SshFabricManager(reached, inputs.name, inputs.fabric_manager.bind_address),
        SshPciDevices(reached, with_users=True),
        SystemClock(),
        StderrReporter(),
    )


def _outputs(inputs: ServiceVmInputs, outcome: reconcile_service_vm.Outcome) -> Properties:
    live = outcome.live
    version = outcome.guest.version or service_vm_health.said(live.console).version
    return {
        "address": inputs.fabric_manager.bind_address,
        "state": outcome.health.value,
        # What the VM says of itself over SSH, else on its console; that may have been rotated away.
        "fabric_manager_version": version or inputs.fabric_manager.version,
        "run": live.run,
        "ssh_host_key": live.host_key,
        "drift": list(outcome.drift),
    }


class ServiceVm(Resource, module="gpu", name="ServiceVm"):
    """The service VM of a host, running, with a fabric manager that serves."""

    address: pulumi.Output[str]
    """Where the fabric manager's API is, as seen from the host."""
    state: pulumi.Output[str]
    """`ready`, or `waiting-for-list` after a restart, until it is told which partitions are active."""
    fabric_manager_version: pulumi.Output[str]
    """What is installed in the VM: asked there over SSH, else what its console says, else what is wanted."""
    run: pulumi.Output[str]
    """Tells one run of the VM from the next: after a restart the active partitions must be told anew."""
    ssh_host_key: pulumi.Output[str]
    """Public key that the VM's SSH server shows; the host alone reaches it."""
    drift: pulumi.Output[Sequence[str]]
    """In words, what a refresh found different on the host; empty after `up`."""

    def __init__(
        self,
        resource_name: str,
        *,
        connection: pulumi.Input[Any],
        switches: Sequence[str],
        image: pulumi.Input[Mapping[str, Any]],
        fabric_manager: pulumi.Input[Mapping[str, Any]],
        name: str = NAME,
        extra_functions: Sequence[str] = (),
        gpus: Mapping[str, str] | None = None,
        vcpus: int = VCPUS,
        memory_mib: int = MEMORY_MIB,
        disk_gib: int | None = None,
        network: Mapping[str, Any] | None = None,
        packages: Mapping[str, Any] | None = None,
        firmware: Mapping[str, str] | None = None,
        boot_timeout_seconds: int | None = None,
        shutdown_timeout_seconds: int | None = None,
        download_timeout_seconds: int | None = None,
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the VM.

        Args:
            resource_name: logical name.
            connection: how the host is reached.
            switches: PCI addresses of every NVSwitch of the board.
            image: `{path | url, sha256}` of the disk image.
            fabric_manager: `{version, bind_address, …}`; see `FabricManagerSettings`.
            name: of the domain.
            extra_functions: what shares the switches' IOMMU group.
            gpus: PCI address by module number; asked for holders before a restart, never passed in.
            vcpus: virtual CPUs.
            memory_mib: RAM.
            disk_gib: size of the VM's own disk.
            network: `{name, bridge, host_address, prefix_length}` of the host-only network.
            packages: what the VM installs at its first boot; None: the image holds it.
            firmware: `{code, variables}`, paths of the host's OVMF.
            boot_timeout_seconds: from the start to the first answer of the fabric manager.
            shutdown_timeout_seconds: before its power is taken.
            download_timeout_seconds: for the image.
            adopt: take over a domain of that name that is not ours.
            opts: resource options.
        """
        optional = {
            "disk_gib": disk_gib,
            "network": network,
            "packages": packages,
            "firmware": firmware,
            "boot_timeout_seconds": boot_timeout_seconds,
            "shutdown_timeout_seconds": shutdown_timeout_seconds,
            "download_timeout_seconds": download_timeout_seconds,
        }
        properties: dict[str, Any] = {
            "connection": connection,
            "name": name,
            "switches": list(switches),
            "extra_functions": list(extra_functions),
            "gpus": dict(gpus or {}),
            "vcpus": vcpus,
            "memory_mib": memory_mib,
            "image": image,
            "fabric_manager": fabric_manager,
            **{key: value for key, value in optional.items() if value is not None},
            "adopt": adopt,
            "address": None,
            "state": None,
            "fabric_manager_version": None,
            "run": None,
            "ssh_host_key": None,
            "drift": None,
        }
        super().__init__(resource_name, properties, opts)
