"""The driver of one host, without an engine."""

from __future__ import annotations

from typing import Any

import pytest

from components.host_connection import HostConnection
from components.rke2.driver_host import DriverHost, DriverHostArgs
from tests.components.recorder import record


def connection(name: str) -> HostConnection:
    return HostConnection(
        host=name, address="192.0.2.1", port=22, user="ops", host_key="ssh-ed25519 AAAA"
    )


def declare(**changes: Any) -> DriverHost:
    values: dict[str, Any] = {"connection": connection("gpu-1"), "gpus": 8, "version": "580.178.04"}
    return DriverHost("gpu-1", DriverHostArgs(**{**values, **changes}))


@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
def test_a_host_has_one_resource_and_asks_every_server_but_itself(preview: bool) -> None:
    servers = [connection("server-1"), connection("gpu-1")]
    engine = record(
        lambda: declare(control=servers, nvswitch=True, may_reboot=False), preview=preview
    )
    assert engine.types() == [
        "gpu-clusters:gpu:GpuDriver",
        "gpu-clusters:rke2:DriverHost",
    ]
    (driver,) = engine.of("GpuDriver").values()
    assert [one["host"] for one in driver["control"]] == ["server-1"]
    assert (driver["node_name"], driver["nvswitch"], driver["reboot"]) == ("gpu-1", True, "refuse")


def test_what_needs_the_driver_depends_on_its_resource() -> None:
    made: list[DriverHost] = []
    record(lambda: made.append(declare()))
    (one,) = made[0].ready
    assert one._name == "gpu-1-driver"
