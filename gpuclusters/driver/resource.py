"""`GpuDriver`: NVIDIA's driver on one host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pulumi

from gpuclusters.driver import decide
from gpuclusters.driver.model import GpuDriverInputs, LiveDriver
from gpuclusters.providers.converging import ConvergingProvider, ConvergingResource
from gpuclusters.providers.reconciling import Properties
from gpuclusters.providers.reconciling import host as reach

if TYPE_CHECKING:
    from gpuclusters.driver.host import DriverCapability
    from gpuclusters.host.ssh import SshHost


class GpuDriverProvider(ConvergingProvider[GpuDriverInputs, LiveDriver]):
    """Keeps the driver of one host; another version is an update in place, with a restart where needed."""

    model = GpuDriverInputs
    identity = frozenset({"connection.host"})
    asked_through = "control"

    def capability(
        self,
        inputs: GpuDriverInputs,
        before: Properties,  # noqa: ARG002
        host: SshHost,
    ) -> DriverCapability:
        """The driver of one host."""
        from gpuclusters.core.converge import StderrReporter, SystemClock
        from gpuclusters.driver.host import DriverCapability
        from gpuclusters.rke2.host import SshRke2Control

        servers = [SshRke2Control(reach(one, self.ssh_key)) for one in inputs.control]
        return DriverCapability(inputs, host, servers, SystemClock(), StderrReporter())

    def outputs(self, inputs: GpuDriverInputs, live: LiveDriver) -> Properties:
        """What others need of the host."""
        steps = {one.step for one in decide.findings(inputs, live)}
        return {
            "driver_version": live.loaded,
            "gpu_product": live.product,
            "gpu_count": len(live.shown) if live.loaded else len(live.gpu),
            "reboot_pending": live.reboot_required or bool(steps & {"boot", "restart"}),
            "kernel": live.kernel,
        }

    def is_absent(self, inputs: GpuDriverInputs, live: LiveDriver) -> bool:  # noqa: ARG002
        """Whether nothing of ours is on the host."""
        return not live.applied and not live.file


class GpuDriver(ConvergingResource, module="gpu", name="GpuDriver"):
    """A host whose GPUs are all served by exactly one driver, or that is ready for the operator's."""

    provider = GpuDriverProvider
    driver_version: pulumi.Output[str]
    gpu_product: pulumi.Output[str]
    """Name of its GPUs as `nvidia-smi` says it; empty where the operator brings the driver."""
    gpu_count: pulumi.Output[int]
    """GPUs that the driver serves; where the operator brings it, GPUs on the bus."""
    reboot_pending: pulumi.Output[bool]
    """Whether the last look found that the host must be restarted."""
    kernel: pulumi.Output[str]
