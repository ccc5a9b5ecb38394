"""Preflight of simulated hosts: one script over real SSH, through the SDK's provider process."""

import pytest

from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.core import codes
from gpuclusters.fabric.table import Board
from gpuclusters.preflight.decide import judge
from gpuclusters.preflight.host import read_facts
from gpuclusters.preflight.model import Stage, expects_of
from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.tables import beside
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Resource

PRESET = PRESETS[Platform.SUPERMICRO_HGX_H100]
EXPECTS = expects_of(PRESET, Board(PRESET.gpus, PRESET.switches, PRESET.extra_functions))
TOGETHER = {
    group: {name: faults.parse(kind, *(values or [{}])) for name, (kind, *values) in rows.items()}
    for group, rows in beside(__file__, "preflight_faults.yaml").items()
}


@pytest.fixture
def preflight(machine: SimulatedHost, start_provider: StartProvider) -> Resource:
    expects = EXPECTS.model_dump(mode="json")
    wanted = {"connection": machine.connection, "stage": "prepared", "expects": expects}
    return start_provider(machine).of("Preflight", wanted)


def found(host: SimulatedHost, stage: Stage = Stage.PREPARED) -> list[str]:
    facts = read_facts(host.ssh, EXPECTS.functions)
    return [finding.code.removeprefix("preflight.") for finding in judge(facts, EXPECTS, stage)]


def test_a_prepared_host_passes_both_stages_with_one_command(machine: SimulatedHost) -> None:
    machine.forget()
    assert found(machine) == found(machine, Stage.BARE) == []
    assert len(machine.commands()) == 2, "one command each"
    assert len(machine.journal("connection")) == 1


@pytest.mark.parametrize("group", TOGETHER)
def test_each_fault_of_a_machine_is_found_by_name_beside_the_others(
    machine: SimulatedHost, group: str
) -> None:
    machine.inject(*TOGETHER[group].values())
    assert set(TOGETHER[group]) <= set(found(machine))
    machine.clear_faults()
    assert found(machine) == [], "no fault leaves anything behind"


def test_what_was_found_is_kept_and_a_refresh_tells_what_went_wrong_since(
    machine: SimulatedHost, preflight: Resource
) -> None:
    made = preflight.create()
    assert preflight.id == f"{machine.name}/preflight-prepared"
    assert made["memory_gib"] > 1900
    assert made["qemu"] == "10.1.0"
    assert made["findings"] == made["warnings"] == []
    gpu = made["gpus"][PRESET.gpus[1]]
    assert (gpu["driver"], gpu["iommu_group"], gpu["numa_node"]) == ("vfio-pci", "91", 1)
    assert not preflight.differs()
    assert preflight.refresh().outputs == made

    machine.inject(faults.GpuFellOffTheBus(module=2), faults.OldVersion())
    live = preflight.refresh()
    assert [f["code"] for f in live.outputs["findings"]] == ["preflight.off-the-bus"]
    assert [w["code"] for w in live.outputs["warnings"]] == ["preflight.kernel-old"]
    assert preflight.differs()
    machine.forget()
    said = preflight.refused(
        "update",
        f"{machine.name} (127.0.0.1:",
        "2 findings; nothing was changed",
        "preflight.off-the-bus: ",
        codes.listed()["preflight.off-the-bus"].do,
    )
    assert "Traceback" not in said
    assert len(machine.commands()) == 1
    machine.clear_faults()
    assert preflight.update()["findings"] == []
    machine.inject(faults.RefuseConnections())
    preflight.delete()  # touches nothing, even when the host is gone


def test_a_bare_host_can_be_prepared_and_is_not_ready_and_a_gpu_in_use_is_not_taken(
    hosts: Hosts,
) -> None:
    (fresh,) = hosts(condition="bare")
    assert found(fresh, Stage.BARE) == ["fuser-missing"]
    fresh.sudo("apt-get install -y psmisc")
    assert found(fresh, Stage.BARE) == []
    missing = {"iommu-off", "driver-loaded", "not-on-vfio", "qemu-missing", "libvirt-missing"}
    assert missing <= set(found(fresh))
    fresh.inject(faults.DeviceHeld(address=PRESET.gpus[1]))
    assert found(fresh, Stage.BARE) == ["gpus-in-use"]


def test_findings_of_a_fleet_come_together_before_any_is_changed_and_only_news_is_judged(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    one, two, three = machines = hosts(3)
    expects = EXPECTS.model_dump(mode="json")
    every = [{"connection": m.connection, "expects": expects} for m in machines]
    fleet = start_provider(one).of("FleetPreflight", {"cluster": "dev", "machines": every})
    one.inject(faults.IommuOff())
    two.inject(faults.GpuFellOffTheBus(module=2))
    three.inject(faults.RefuseConnections())
    fleet.refused(
        "create",
        "3 of 3 machines cannot be prepared; nothing was changed on any of them",
        *(f"{host.name}:" for host in machines),
        *("preflight.iommu-firmware-off", "preflight.off-the-bus", "Connection refused"),
    )
    for host in machines:
        host.clear_faults()
    fleet.wanted["machines"] = every[:2]
    assert fleet.create()["findings"] == {}
    assert fleet.id == "dev/fleet"
    assert not fleet.differs()

    # A machine that serves is not judged again because another one joins.
    one.forget()
    two.inject(faults.GpuFellOffTheBus(module=2))
    fleet.wanted["machines"] = every
    assert fleet.differs()
    assert sorted(fleet.update()["warnings"]) == sorted(h.name for h in machines)
    assert one.commands() == []

    # A refresh looks at all of them; what it finds stops the next `up`.
    assert list(fleet.refresh().outputs["findings"]) == [two.name]
    assert fleet.differs()
    fleet.refused("update", "1 of 1 machines")
