"""`ServiceVm`: the VM on a host that holds its NVSwitches, with a fabric manager that serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pulumi

from gpuclusters.providers.converging import ConvergingProvider, ConvergingResource
from gpuclusters.providers.reconciling import Live, Properties
from gpuclusters.providers.reconciling import host as host_of
from gpuclusters.service_vm.decide import said
from gpuclusters.service_vm.model import ServiceVmInputs

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost
    from gpuclusters.service_vm.decide import LiveVm
    from gpuclusters.service_vm.host import ServiceVmCapability


class ServiceVmProvider(ConvergingProvider[ServiceVmInputs, "LiveVm"]):
    """Keeps one VM; ours carries a mark in its metadata. It never restarts while a GPU is held."""

    model = ServiceVmInputs
    exclusive = True
    identity = frozenset({"connection.host", "name", "network.name", "network.bridge"})

    def capability(
        self, inputs: ServiceVmInputs, before: Properties, host: SshHost
    ) -> ServiceVmCapability:
        """The VM of one host."""
        from gpuclusters.core.converge import StderrReporter, SystemClock
        from gpuclusters.fabric.manager import SshFabricManager
        from gpuclusters.host.remote import SshPciDevices
        from gpuclusters.service_vm.host import ServiceVmCapability, SshServiceVm

        return ServiceVmCapability(
            inputs,
            SshServiceVm(host, inputs),
            SshFabricManager(host, inputs.name, inputs.fabric_manager.bind_address),
            SshPciDevices(host, with_users=True),
            SystemClock(),
            StderrReporter(),
            known=bool(before),
        )

    def observe(self, inputs: ServiceVmInputs, before: Properties) -> Live | None:
        """The VM as it is, how it differs, and whether its fabric manager serves."""
        capability = self.capability(inputs, before, host_of(inputs.connection, self.ssh_key))
        live = capability.asked(capability.observe())
        if self.is_absent(inputs, live):
            return None
        return Live(self.kept(inputs, capability, live))

    def is_absent(self, inputs: ServiceVmInputs, live: LiveVm) -> bool:  # noqa: ARG002
        """Whether there is no VM."""
        return live.domain is None

    def outputs(self, inputs: ServiceVmInputs, live: LiveVm) -> Properties:
        """Where the fabric manager is, and what it is."""
        version = live.guest.version or said(live.console).version
        return {
            "address": inputs.fabric_manager.bind_address,
            "state": live.health.value if live.health else "",
            # What the VM says of itself over SSH, else on its console; that may have been rotated away.
            "fabric_manager_version": version or inputs.fabric_manager.version,
            "run": live.run,
            "ssh_host_key": live.host_key,
        }


class ServiceVm(ConvergingResource, module="gpu", name="ServiceVm"):
    """The service VM of a host, running."""

    provider = ServiceVmProvider
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
