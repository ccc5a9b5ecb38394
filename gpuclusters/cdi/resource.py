"""`CdiSpec`: the CDI file of a host; devices are named by PCI address, their VFIO groups are read there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pulumi

from gpuclusters.cdi.decide import devices_in
from gpuclusters.cdi.model import CdiSpecInputs
from gpuclusters.providers.converging import ConvergingProvider, ConvergingResource
from gpuclusters.providers.reconciling import Properties

if TYPE_CHECKING:
    from gpuclusters.cdi.decide import LiveCdi
    from gpuclusters.cdi.host import CdiCapability
    from gpuclusters.host.ssh import SshHost


class CdiSpecProvider(ConvergingProvider[CdiSpecInputs, "LiveCdi"]):
    """Keeps one CDI file; ours carry an annotation that says so."""

    model = CdiSpecInputs
    identity = frozenset({"connection.host", "path"})

    def capability(self, inputs: CdiSpecInputs, before: Properties, host: SshHost) -> CdiCapability:
        """The CDI file of one host."""
        from gpuclusters.cdi.host import CdiCapability

        return CdiCapability(inputs, host, written=bool(before.get("sha256")))

    def outputs(self, inputs: CdiSpecInputs, live: LiveCdi) -> Properties:  # noqa: ARG002
        """What the file is now."""
        assert live.file is not None  # noqa: S101 (else it is absent)
        kind, devices = devices_in(live.file.content)
        return {
            "qualified_names": [f"{kind}={device['name']}" for device in devices],
            "content": live.file.content.decode(errors="replace"),
            "sha256": live.file.sha256,
        }

    def live_inputs(self, inputs: CdiSpecInputs, live: LiveCdi) -> Properties:
        """Kind and devices, where the file says others."""
        assert live.file is not None  # noqa: S101 (else it is absent)
        kind, devices = devices_in(live.file.content)
        if (kind, devices) == (inputs.kind, [device.model_dump() for device in inputs.devices]):
            return {}
        return {"kind": kind, "devices": devices}

    def is_absent(self, inputs: CdiSpecInputs, live: LiveCdi) -> bool:  # noqa: ARG002
        """Whether the file is gone."""
        return live.file is None


class CdiSpec(ConvergingResource, module="gpu", name="CdiSpec"):
    """A CDI file on a host."""

    provider = CdiSpecProvider
    path: pulumi.Output[str]
    content: pulumi.Output[str]
    sha256: pulumi.Output[str]
    qualified_names: pulumi.Output[Sequence[str]]
    """As containers ask for the devices: `nvidia.com/pgpu=1`."""
