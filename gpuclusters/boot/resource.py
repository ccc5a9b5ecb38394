"""`HostBoot`: kernel arguments and files of a host that are in effect; rebooted only if that is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pulumi

from gpuclusters.boot.model import HostBootInputs
from gpuclusters.providers.converging import ConvergingProvider, ConvergingResource
from gpuclusters.providers.reconciling import Properties

if TYPE_CHECKING:
    from gpuclusters.boot.decide import BootState
    from gpuclusters.boot.host import BootCapability
    from gpuclusters.host.ssh import SshHost


class HostBootProvider(ConvergingProvider[HostBootInputs, "BootState"]):
    """Keeps the arguments and files of one host."""

    model = HostBootInputs
    identity = frozenset({"connection.host"})

    def capability(
        self, inputs: HostBootInputs, before: Properties, host: SshHost
    ) -> BootCapability:
        """The boot of one host."""
        from gpuclusters.boot.host import BootCapability
        from gpuclusters.core.converge import StderrReporter, SystemClock

        old = before.get("files") or {}
        return BootCapability(inputs, host, old, SystemClock(), StderrReporter())

    def outputs(self, inputs: HostBootInputs, live: BootState) -> Properties:  # noqa: ARG002
        """The boot in which all is in effect."""
        return {"boot_id": live.boot_id, "kernel_command_line": live.running}

    def is_absent(self, inputs: HostBootInputs, live: BootState) -> bool:  # noqa: ARG002
        """Whether nothing of ours is on the host."""
        return not live.ours and all(file.digest is None for file in live.files.values())


class HostBoot(ConvergingResource, module="gpu", name="HostBoot"):
    """Kernel arguments and files of a host, proven by its running command line."""

    provider = HostBootProvider
    boot_id: pulumi.Output[str]
    """Of the boot in which they are in effect."""
    kernel_command_line: pulumi.Output[str]
