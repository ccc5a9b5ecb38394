"""The CDI spec of a host's passthrough GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import adoption_host, cdi, reconcile
from gpuclusters.domain.cdi import CdiSpecInputs
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.node_files import SshNodeFiles
    from gpuclusters.adapters.pci_devices import SshPciDevices


class CdiSpecProvider(KeptProvider[CdiSpecInputs]):
    """Keeps one CDI file; ours carry an annotation that says so."""

    model = CdiSpecInputs
    changes_machine = True
    identity = frozenset({"connection.host", "path"})

    def ensure(self, inputs: CdiSpecInputs, before: Properties) -> Properties:
        """Write the file unless it is as the devices ask for."""
        from gpuclusters.adapters.here import StderrReporter
        from gpuclusters.adapters.module_map import SshModuleMap

        files, pci = self._reach(inputs)
        made = reconcile.ensure_cdi(
            inputs,
            files,
            pci,
            StderrReporter(),
            written=before.get("sha256"),
            modules=SshModuleMap(host(inputs.connection, self.ssh_key)),
        )
        return _outputs(inputs.qualified_names, made.content, made.sha256, [])

    def differences(self, inputs: CdiSpecInputs) -> Sequence[str]:
        """Of a file that is there, in what it hands out."""
        files, pci = self._reach(inputs)
        found = pci.inspect([device.pci_address for device in inputs.devices])
        cdi.require_vfio(files.place, inputs.devices, found)
        return [*adoption_host.cdi_file(inputs, files.read(inputs.path), found)]

    def observe(self, inputs: CdiSpecInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The file as it is, and how it differs from what the hardware asks for."""
        files, pci = self._reach(inputs)
        live = files.read(inputs.path)
        if live is None:
            return None
        drift = reconcile.cdi_drift(inputs, live, pci)
        kind, devices = cdi.devices_in(live.content)
        found: Properties = {"kind": kind, "devices": devices} if drift else {}
        names = tuple(f"{kind}={d['name']}" for d in devices)
        content = live.content.decode(errors="replace")
        return Live(_outputs(names, content, live.sha256, drift), found)

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found the file different."""
        return bool(outputs.get("drift"))

    def remove(self, inputs: CdiSpecInputs, before: Properties) -> None:  # noqa: ARG002
        """Remove the file if it carries our mark."""
        reconcile.remove_cdi(inputs.path, self._reach(inputs)[0])

    def _reach(self, inputs: CdiSpecInputs) -> tuple[SshNodeFiles, SshPciDevices]:
        from gpuclusters.adapters.node_files import SshNodeFiles
        from gpuclusters.adapters.pci_devices import SshPciDevices

        reached = host(inputs.connection, self.ssh_key)
        return SshNodeFiles(reached), SshPciDevices(reached, with_users=False)


def _outputs(names: Sequence[str], content: str, digest: str, drift: Sequence[str]) -> Properties:
    return {
        "qualified_names": list(names),
        "content": content,
        "sha256": digest,
        "drift": list(drift),
    }


class CdiSpec(Resource, module="gpu", name="CdiSpec"):
    """A CDI file on a host; devices are named by PCI address, their VFIO groups are read there."""

    path: pulumi.Output[str]
    content: pulumi.Output[str]
    sha256: pulumi.Output[str]
    qualified_names: pulumi.Output[Sequence[str]]
    """As containers ask for the devices: `nvidia.com/pgpu=1`."""
    drift: pulumi.Output[Sequence[str]]
    """In words, what a refresh found different on the host; empty after `up`."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        path: pulumi.Input[str],
        kind: pulumi.Input[str],
        devices: Sequence[pulumi.Input[Mapping[str, Any]]],
        adopt: bool = False,
        vfio: pulumi.Input[str] = "legacy",
        module_map: pulumi.Input[str] = "read",
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        properties: dict[str, Any] = {
            "connection": connection,
            "path": path,
            "kind": kind,
            "devices": devices,
            "adopt": adopt,
            "vfio": vfio,
            "module_map": module_map,
            "sha256": None,
            "content": None,
            "qualified_names": None,
            "drift": None,
        }
        super().__init__(name, properties, opts)
