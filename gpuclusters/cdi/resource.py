"""`CdiSpec`: the CDI file of a host; devices are named by PCI address, their VFIO groups are read there."""

from collections.abc import Sequence

import pulumi

from gpuclusters.cdi.model import CdiSpecInputs
from gpuclusters.providers.reconciling import ConvergingProvider
from gpuclusters.providers.resource import ConvergingResource


class CdiSpecProvider(ConvergingProvider[CdiSpecInputs]):
    """Keeps one CDI file; ours carry an annotation that says so."""

    model = CdiSpecInputs
    identity = frozenset({"connection.host", "path"})
    kept_by = "gpuclusters.cdi.host:CdiCapability.on"


class CdiSpec(ConvergingResource, module="gpu", name="CdiSpec"):
    provider = CdiSpecProvider
    path: pulumi.Output[str]
    content: pulumi.Output[str]
    sha256: pulumi.Output[str]
    qualified_names: pulumi.Output[Sequence[str]]
    """As containers ask for the devices: `nvidia.com/pgpu=1`."""
