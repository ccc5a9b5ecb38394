"""One systemd unit on a host that is put back when it drifts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import adoption_host, host_unit
from gpuclusters.domain.host_unit import HostUnitInputs
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.host_units import SshHostUnits
    from gpuclusters.adapters.node_files import SshNodeFiles


class HostUnitProvider(KeptProvider[HostUnitInputs]):
    """Keeps one unit: its file, enabled or not, running or not."""

    model = HostUnitInputs
    changes_machine = True
    identity = frozenset({"connection.host", "unit"})

    def ensure(self, inputs: HostUnitInputs, before: Properties) -> Properties:
        """Write, enable and start what is not as it must be."""
        from gpuclusters.adapters.here import StderrReporter

        files, units = self._reach(inputs)
        digest = host_unit.ensure(
            inputs, files, units, StderrReporter(), written=before.get("sha256")
        )
        return {"sha256": digest}

    def differences(self, inputs: HostUnitInputs) -> Sequence[str]:
        """Of a unit that is there."""
        files, units = self._reach(inputs)
        live = files.read(inputs.path)
        said = host_unit.differences(inputs, units.state(inputs.unit)) if live else []
        return [*adoption_host.unit(inputs.path, inputs.content, live, said)]

    def observe(self, inputs: HostUnitInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The unit as it is."""
        files, units = self._reach(inputs)
        live = files.read(inputs.path)
        if live is None:
            return None
        state = units.state(inputs.unit)
        return Live(
            {"sha256": live.sha256},
            {
                "content": live.content.decode(errors="replace"),
                "enabled": state.is_enabled(),
                "active": state.active == "active",
            },
        )

    def remove(self, inputs: HostUnitInputs, before: Properties) -> None:
        """Stop it and remove its file, if that is what we wrote."""
        files, units = self._reach(inputs)
        host_unit.remove(inputs, files, units, written=before["sha256"])

    def _reach(self, inputs: HostUnitInputs) -> tuple[SshNodeFiles, SshHostUnits]:
        from gpuclusters.adapters.host_units import SshHostUnits
        from gpuclusters.adapters.node_files import SshNodeFiles

        reached = host(inputs.connection, self.ssh_key)
        return SshNodeFiles(reached), SshHostUnits(reached)


class HostUnit(Resource, module="gpu", name="HostUnit"):
    """A systemd unit of a host, with its content, enabled and active."""

    unit: pulumi.Output[str]
    sha256: pulumi.Output[str]
    """Digest of its file."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        unit: pulumi.Input[str],
        content: pulumi.Input[str],
        enabled: pulumi.Input[bool] = True,
        active: pulumi.Input[bool] = True,
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        properties: dict[str, Any] = {
            "connection": connection,
            "unit": unit,
            "content": content,
            "enabled": enabled,
            "active": active,
            "adopt": adopt,
            "sha256": None,
        }
        super().__init__(name, properties, opts)
