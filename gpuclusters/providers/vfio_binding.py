"""The PCI functions of a host that belong to vfio-pci, at every boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from gpuclusters.domain import adoption_host, reconcile_vfio
from gpuclusters.domain.vfio import FoundFunction, VfioBindingInputs, VfioFunction
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties

if TYPE_CHECKING:
    from gpuclusters.adapters.host_units import SshHostUnits
    from gpuclusters.adapters.node_files import SshNodeFiles
    from gpuclusters.adapters.vfio_functions import SshVfioHost


class VfioBindingProvider(KeptProvider[VfioBindingInputs]):
    """Keeps a list of functions, and the unit that binds them."""

    model = VfioBindingInputs
    changes_machine = True
    identity = frozenset({"connection.host"})

    def ensure(self, inputs: VfioBindingInputs, before: Properties) -> Properties:
        """Bind what is not bound."""
        from gpuclusters.adapters.here import StandardError
        from gpuclusters.adapters.vfio_functions import parts

        files, bound, units = self._reach(inputs)
        old = [VfioFunction.model_validate(f) for f in before.get("functions", ())]
        found = reconcile_vfio.ensure(
            inputs, parts(), files, bound, units, StandardError(), before=old
        )
        return _outputs(found, ())

    def differences(self, inputs: VfioBindingInputs) -> Sequence[str]:
        """Of functions that are bound otherwise, and of files that are there."""
        from gpuclusters.adapters.vfio_functions import parts

        files, bound, _ = self._reach(inputs)
        ours = {
            path: (content, files.read(path))
            for path, (content, _) in parts().files(inputs).items()
        }
        return [*adoption_host.bindings(inputs, bound.inspect(inputs.functions), ours)]

    def observe(self, inputs: VfioBindingInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The drivers as they are."""
        from gpuclusters.adapters.vfio_functions import parts

        files, bound, units = self._reach(inputs)
        if all(files.read(path) is None for path in parts().files(inputs)):
            return None
        said = reconcile_vfio.drift(inputs, parts(), files, bound, units)
        return Live(_outputs(bound.inspect(inputs.functions), said), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found something changed."""
        return bool(outputs.get("drift"))

    def remove(self, inputs: VfioBindingInputs, before: Properties) -> None:  # noqa: ARG002
        """Give the functions back."""
        reconcile_vfio.remove(inputs, *self._reach(inputs))

    def _reach(self, inputs: VfioBindingInputs) -> tuple[SshNodeFiles, SshVfioHost, SshHostUnits]:
        from gpuclusters.adapters.host_units import SshHostUnits
        from gpuclusters.adapters.node_files import SshNodeFiles
        from gpuclusters.adapters.vfio_functions import SshVfioHost

        reached = host(inputs.connection, self.ssh_key)
        return SshNodeFiles(reached), SshVfioHost(reached), SshHostUnits(reached)


def _outputs(found: Mapping[str, FoundFunction], said: Sequence[str]) -> Properties:
    groups = {a: f.iommu_group for a, f in sorted(found.items()) if f.iommu_group is not None}
    return {"iommu_groups": groups, "drift": list(said)}


class VfioBinding(Resource, module="gpu", name="VfioBinding"):
    """Functions, each proven by its ids, that are on vfio-pci now and after every boot."""

    iommu_groups: pulumi.Output[Mapping[str, str]]
    """Group by PCI address."""
    drift: pulumi.Output[Sequence[str]]
    """In words, what a refresh found different on the host; empty after `up`."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        functions: Sequence[pulumi.Input[Mapping[str, Any]]],
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        properties: dict[str, Any] = {
            "connection": connection,
            "functions": functions,
            "adopt": adopt,
            "iommu_groups": None,
            "drift": None,
        }
        super().__init__(VfioBindingProvider(), name, properties, opts)
