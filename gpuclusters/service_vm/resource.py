"""`ServiceVm`: the VM on a host that holds its NVSwitches, with a fabric manager that serves."""

import pulumi

from gpuclusters.providers.reconciling import ConvergingProvider
from gpuclusters.providers.resource import ConvergingResource
from gpuclusters.service_vm.model import ServiceVmInputs


class ServiceVmProvider(ConvergingProvider[ServiceVmInputs]):
    """Keeps one VM; ours carries a mark in its metadata. It never restarts while a GPU is held."""

    model = ServiceVmInputs
    exclusive = True
    identity = frozenset({"connection.host", "name", "network.name", "network.bridge"})
    kept_by = "gpuclusters.service_vm.host:ServiceVmCapability.on"


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
