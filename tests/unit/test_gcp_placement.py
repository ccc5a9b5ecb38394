"""Waiting for a machine on Google Cloud, and the order in which zones are asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import pytest

from gpuclusters.core.finding import Refused as RefusedError
from gpuclusters.gcp import placement
from gpuclusters.gcp.model import ApiError, GcpMachineInputs, Instance
from tests.fixtures.tables import beside
from tests.fixtures.waiting import Waiting

MACHINE = beside(__file__, "gcp_machine.yaml")
ZONES = ("us-central1-a", "us-central1-b", "us-central1-c")


def machine(**changes: Any) -> GcpMachineInputs:
    return GcpMachineInputs.model_validate({**MACHINE, "zones": ZONES, **changes})


def instance(zone: str, status: str) -> Instance:
    labels = {"gpu-clusters-owner": "o"}
    return Instance.model_validate(
        {"name": "gpu-1", "zone": zone, "status": status, "labels": labels}
        | {"machineType": "n1-standard-8"}
    )


@dataclass
class World(Waiting):
    """Compute, clock and journal in one."""

    there: dict[str, Instance] = field(default_factory=dict)
    """By zone."""
    stock: tuple[str, ...] = ZONES
    becomes: list[str] = field(default_factory=list)
    """Statuses that the machine shows one after the other, the last one for ever."""
    asked: list[str] = field(default_factory=list)

    def find(self, project: str, name: str) -> Sequence[Instance]:
        return list(self.there.values())

    def get(self, project: str, zone: str, name: str) -> Instance | None:
        live = self.there.get(zone)
        if live is not None and self.becomes:
            status = self.becomes.pop(0) if len(self.becomes) > 1 else self.becomes[0]
            live = self.there[zone] = live.model_copy(update={"status": status})
        return live

    def insert(self, project: str, zone: str, body: Mapping[str, Any], seconds: float) -> None:
        self.asked.append(zone)
        if zone not in self.stock:
            raise ApiError(400, "STOCKOUT", "does not have enough resources")
        self.there[zone] = instance(zone, "RUNNING")

    def start(self, project: str, zone: str, name: str, seconds: float) -> None:
        self.asked.append(f"start {zone}")
        self.becomes = ["RUNNING"]

    def delete(self, project: str, zone: str, name: str, seconds: float) -> None:
        del self.there[zone]

    def ensure(self, **changes: Any) -> Instance:
        return placement.Machine(machine(**changes), self, self, self).ensure()


@pytest.mark.parametrize("order", list(permutations(ZONES)))
@pytest.mark.parametrize("stock", [ZONES[:1], ZONES[1:], ZONES[2:]])
def test_the_first_zone_with_stock_in_the_order_given_is_taken(
    order: tuple[str, ...], stock: tuple[str, ...]
) -> None:
    world = World(stock=stock)
    first = next(zone for zone in order if zone in stock)
    assert world.ensure(zones=order).zone == first
    assert world.asked == list(order[: order.index(first) + 1])
    assert len(world.notes) == order.index(first)


@pytest.mark.parametrize("order", list(permutations(ZONES)))
@pytest.mark.parametrize("at", ["us-central1-b", "us-central1-f"])
def test_a_machine_that_is_there_stays_in_any_order(order: tuple[str, ...], at: str) -> None:
    world = World(there={at: instance(at, "RUNNING")})
    assert world.ensure(zones=order).zone == at
    assert world.asked == []


@pytest.mark.parametrize(
    ("statuses", "asked", "looks"),
    [
        (["STAGING", "STAGING", "RUNNING"], [], 2),
        (["STOPPING", "TERMINATED"], [f"start {ZONES[0]}"], 1),
    ],
)
def test_a_machine_that_starts_is_waited_for_and_one_that_stops_is_started_after(
    statuses: list[str], asked: list[str], looks: int
) -> None:
    world = World(there={ZONES[0]: instance(ZONES[0], statuses[0])}, becomes=[*statuses])
    assert world.ensure().status == "RUNNING"
    assert world.asked == asked
    assert world.time == looks * placement.POLL_SECONDS


def test_a_machine_that_never_runs_is_given_up() -> None:
    world = World(there={ZONES[0]: instance(ZONES[0], "PROVISIONING")}, becomes=["PROVISIONING"])
    with pytest.raises(RefusedError, match="it is PROVISIONING after 60 s"):
        world.ensure()
    assert 60 <= world.time < 70


def test_a_spot_machine_that_is_taken_back_at_once_is_said() -> None:
    world = World(becomes=["STAGING", "TERMINATED"])
    with pytest.raises(RefusedError, match="is TERMINATED again: a spot machine was taken back"):
        world.ensure(provisioning="spot")
