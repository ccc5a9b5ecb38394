"""`VfioBinding`: functions of a host, each proven by its ids, on vfio-pci now and after every boot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pulumi

from gpuclusters.providers.converging import ConvergingProvider, ConvergingResource
from gpuclusters.providers.reconciling import Properties
from gpuclusters.vfio.model import VfioBindingInputs, VfioFunction

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost
    from gpuclusters.vfio.decide import LiveBinding
    from gpuclusters.vfio.host import VfioCapability


class VfioBindingProvider(ConvergingProvider[VfioBindingInputs, "LiveBinding"]):
    """Keeps a list of functions, and the unit that binds them."""

    model = VfioBindingInputs
    identity = frozenset({"connection.host"})

    def capability(
        self, inputs: VfioBindingInputs, before: Properties, host: SshHost
    ) -> VfioCapability:
        """The functions of one host."""
        from gpuclusters.vfio.host import VfioCapability

        old = [VfioFunction.model_validate(f) for f in before.get("functions", ())]
        return VfioCapability(inputs, host, old)

    def outputs(self, inputs: VfioBindingInputs, live: LiveBinding) -> Properties:
        """The IOMMU groups."""
        found = {f.address: live.functions[f.address] for f in inputs.functions}
        groups = {a: f.iommu_group for a, f in sorted(found.items()) if f.iommu_group is not None}
        return {"iommu_groups": groups}

    def is_absent(self, inputs: VfioBindingInputs, live: LiveBinding) -> bool:  # noqa: ARG002
        """Whether nothing of ours is on the host."""
        return not any(live.files.values())


class VfioBinding(ConvergingResource, module="gpu", name="VfioBinding"):
    """Functions that are on vfio-pci now and after every boot."""

    provider = VfioBindingProvider
    iommu_groups: pulumi.Output[Mapping[str, str]]
    """Group by PCI address."""
