"""`VfioBinding`: functions of a host, each proven by its ids, on vfio-pci now and after every boot."""

from collections.abc import Mapping

import pulumi

from gpuclusters.providers.reconciling import ConvergingProvider
from gpuclusters.providers.resource import ConvergingResource
from gpuclusters.vfio.model import VfioBindingInputs


class VfioBindingProvider(ConvergingProvider[VfioBindingInputs]):
    """Keeps a list of functions, and the unit that binds them."""

    model = VfioBindingInputs
    identity = frozenset({"connection.host"})
    kept_by = "gpuclusters.vfio.host:VfioCapability.on"


class VfioBinding(ConvergingResource, module="gpu", name="VfioBinding"):
    """Functions that are on vfio-pci now and after every boot."""

    provider = VfioBindingProvider
    iommu_groups: pulumi.Output[Mapping[str, str]]
    """Group by PCI address."""
