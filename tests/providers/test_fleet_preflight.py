"""All machines are looked at before any is changed, and reported together."""

from collections.abc import Callable
from typing import Any

import pytest

from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.fabric.table import Board
from gpuclusters.preflight.model import expects_of
from gpuclusters.preflight.resource import FleetPreflightProvider
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import StepFailed

PRESET = PRESETS[Platform.SUPERMICRO_HGX_H100]
EXPECTS = expects_of(PRESET, Board(PRESET.gpus, PRESET.switches, PRESET.extra_functions))


def wanted(*machines: SimulatedHost) -> dict[str, Any]:
    expects = EXPECTS.model_dump(mode="json")
    return {
        "cluster": "dev",
        "machines": [{"connection": m.connection, "expects": expects} for m in machines],
    }


def test_findings_of_all_machines_come_together_and_only_news_is_judged(
    hosts: Callable[..., list[SimulatedHost]], start_provider: StartProvider
) -> None:
    one, two, three = hosts(3, platform="supermicro-hgx-h100")
    provider = start_provider(one)
    one.inject(faults.IommuOff())
    two.inject(faults.GpuFellOffTheBus(module=2))
    three.inject(faults.RefuseConnections())
    with pytest.raises(StepFailed) as failed:
        provider.create(FleetPreflightProvider, wanted(one, two, three))
    said = str(failed.value)
    assert "3 of 3 machines cannot be prepared; nothing was changed on any of them" in said
    for host, finding in ((one, "preflight.iommu-firmware-off"), (two, "preflight.off-the-bus")):
        assert f"{host.name}:" in said
        assert finding in said
    assert f"{three.name}:" in said
    assert "Connection refused" in said

    for host in (one, two, three):
        host.clear_faults()
    inputs = wanted(one, two)
    made = provider.create(FleetPreflightProvider, inputs)
    assert made.id == "dev/fleet"
    assert made.outputs["findings"] == {}
    assert not provider.diff(FleetPreflightProvider, made.outputs, inputs).changes

    # A machine that serves is not judged again because another one joins.
    one.forget()
    two.inject(faults.GpuFellOffTheBus(module=2))
    grown = wanted(one, two, three)
    assert provider.diff(FleetPreflightProvider, made.outputs, grown).changes
    after = provider.update(FleetPreflightProvider, made, grown)
    assert sorted(after.outputs["warnings"]) == sorted(h.name for h in (one, two, three))
    assert one.commands() == []

    # A refresh looks at all of them; what it finds stops the next `up`.
    seen = provider.read(FleetPreflightProvider, after)
    assert list(seen.outputs["findings"]) == [two.name]
    after.outputs = seen.outputs
    assert provider.diff(FleetPreflightProvider, after.outputs, grown).changes
    with pytest.raises(StepFailed, match="1 of 1 machines"):
        provider.update(FleetPreflightProvider, after, grown)
