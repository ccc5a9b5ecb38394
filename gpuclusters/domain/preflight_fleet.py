"""All machines of a cluster looked at before the first of them is changed: one report of everything. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from gpuclusters.core.finding import Refused
from gpuclusters.domain.custom_resource import Name
from gpuclusters.domain.preflight_expects import Expects
from gpuclusters.fabric.table import repeated
from gpuclusters.host.model import HostConnection


class FleetMachine(BaseModel):
    """One machine, and what it must be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: HostConnection
    expects: Expects


class FleetInputs(BaseModel):
    """Inputs of the resource `FleetPreflight`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: Name
    machines: tuple[FleetMachine, ...]

    @model_validator(mode="after")
    def _each_machine_once(self) -> FleetInputs:
        twice = repeated([machine.connection.host for machine in self.machines])
        if twice:
            raise ValueError(f"machines: {', '.join(twice)} stands more than once; name it once")
        return self

    @property
    def natural_id(self) -> str:
        """The cluster."""
        return f"{self.cluster}/fleet"


class FleetError(Refused):
    """Machines that cannot be prepared, each with all that is wrong with it."""

    error_id = "preflight.fleet-unfit"

    def __init__(self, reports: Sequence[str], looked_at: int) -> None:
        super().__init__("preflight", ())
        self.reports, self.looked_at = tuple(reports), looked_at

    def __str__(self) -> str:
        count = f"{len(self.reports)} of {self.looked_at} machines"
        head = f"{self.target}: {count} cannot be prepared; nothing was changed on any of them"
        return "\n".join([head, *self.reports])


def to_look_at(inputs: FleetInputs, before: Mapping[str, Any]) -> tuple[FleetMachine, ...]:
    """Machines that are new, or described otherwise than before.

    A machine that was found fit has been prepared since, and runs containers: it is not judged again
    because another one joins.
    """
    known = {
        machine["connection"]["host"]: machine
        for machine in before.get("machines") or ()
        if not before.get("findings", {}).get(machine["connection"]["host"])
    }
    return tuple(
        machine
        for machine in inputs.machines
        if _plain(machine) != _plain_of(known.get(machine.connection.host))
    )


def _plain(machine: FleetMachine) -> Mapping[str, Any]:
    return machine.model_dump(mode="json")


def _plain_of(known: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if known is None else _plain(FleetMachine.model_validate(known))
