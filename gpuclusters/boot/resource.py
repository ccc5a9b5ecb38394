"""`HostBoot`: kernel arguments and files of a host that are in effect; rebooted only if that is allowed."""

import pulumi

from gpuclusters.boot.model import HostBootInputs
from gpuclusters.providers.reconciling import ConvergingProvider
from gpuclusters.providers.resource import ConvergingResource


class HostBootProvider(ConvergingProvider[HostBootInputs]):
    model = HostBootInputs
    identity = frozenset({"connection.host"})
    kept_by = "gpuclusters.boot.host:BootCapability.on"


class HostBoot(ConvergingResource, module="gpu", name="HostBoot"):
    """Kernel arguments and files of a host, proven by its running command line."""

    provider = HostBootProvider
    boot_id: pulumi.Output[str]
    """Of the boot in which they are in effect."""
    kernel_command_line: pulumi.Output[str]
