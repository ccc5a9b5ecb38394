"""The CDI file of one host over SSH."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuclusters.cdi import decide
from gpuclusters.cdi.decide import LiveCdi
from gpuclusters.cdi.model import CdiSpecInputs
from gpuclusters.core.converge import Step
from gpuclusters.core.finding import Finding, refused
from gpuclusters.fabric.decide import require_map
from gpuclusters.fabric.manager import SshModuleMap
from gpuclusters.fabric.table import MapSource
from gpuclusters.host.capability import HostCapability
from gpuclusters.host.remote import SshPciDevices


class CdiCapability(HostCapability[CdiSpecInputs, LiveCdi]):
    @property
    def steps(self) -> Mapping[str, Step[LiveCdi]]:
        return {decide.WRITE: Step(self._write)}

    def observe(self) -> LiveCdi:
        addresses = [device.pci_address for device in self._inputs.devices]
        return LiveCdi(
            self._files.read(self._inputs.path),
            self._files.read_folders(decide.CDI_FOLDERS, decide.CDI_SUFFIXES),
            SshPciDevices(self._host, with_users=False).inspect(addresses),
        )

    def findings(self, live: LiveCdi) -> Iterable[Finding]:
        return decide.findings(self._inputs, live, written=bool(self._before.get("sha256")))

    def differences(self, live: LiveCdi) -> Iterable[Finding]:
        """What the file hands out otherwise; a form of its own is none."""
        broken = [*decide.device_findings(self._inputs, live.functions)]
        return broken or [*decide.effect_differences(self._inputs, live)]

    def outputs(self, live: LiveCdi) -> Mapping[str, Any]:
        assert live.file is not None  # noqa: S101 (else it is absent)
        kind, devices = decide.devices_in(live.file.content)
        return {
            "qualified_names": [f"{kind}={device['name']}" for device in devices],
            "content": live.file.content.decode(errors="replace"),
            "sha256": live.file.sha256,
        }

    def live_inputs(self, live: LiveCdi) -> Mapping[str, Any]:
        assert live.file is not None  # noqa: S101 (else it is absent)
        kind, devices = decide.devices_in(live.file.content)
        declared = [device.model_dump() for device in self._inputs.devices]
        same = (kind, devices) == (self._inputs.kind, declared)
        return {} if same else {"kind": kind, "devices": devices}

    def is_absent(self, live: LiveCdi) -> bool:
        return live.file is None

    def remove(self) -> None:
        """Remove the file if it carries our mark; absent is fine."""
        path = self._inputs.path
        live = self._files.read(path)
        if live is None:
            return
        if not decide.is_ours(live.content):
            mark = f"the annotation {decide.OWNER_ANNOTATION}"
            raise refused(self.target, "cdi.file-foreign", path=path, case="removal", mark=mark)
        self._files.remove(path)

    def _write(self, live: LiveCdi, _found: Sequence[Finding]) -> None:
        """Write the file, if the GPUs sit in the modules that their devices are named by."""
        inputs = self._inputs
        configured = inputs.configured_map
        if configured and inputs.module_map is MapSource.READ:
            modules = SshModuleMap(self._host)
            require_map(modules.target, configured, modules.read(sorted(configured.values())))
        content = decide.render(inputs, live.functions).encode()
        self._files.write(inputs.path, content, mode=decide.MODE, owner=decide.OWNED_BY)
