"""`GpuDriver`: NVIDIA's driver on one host."""

import pulumi

from gpuclusters.driver.model import GpuDriverInputs
from gpuclusters.providers.reconciling import ConvergingProvider
from gpuclusters.providers.resource import ConvergingResource


class GpuDriverProvider(ConvergingProvider[GpuDriverInputs]):
    """Keeps the driver of one host; another version is an update in place, with a restart where needed."""

    model = GpuDriverInputs
    identity = frozenset({"connection.host"})
    asked_through = "control"
    kept_by = "gpuclusters.driver.host:DriverCapability.on"


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
