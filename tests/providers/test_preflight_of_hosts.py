"""Preflight of simulated hosts: one script over real SSH, through the SDK's provider process."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.core import codes
from gpuclusters.fabric.table import Board
from gpuclusters.preflight.decide import judge
from gpuclusters.preflight.host import read_facts
from gpuclusters.preflight.model import Expects, Stage, expects_of
from gpuclusters.preflight.resource import PreflightProvider
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import StepFailed

PRESET = PRESETS[Platform.SUPERMICRO_HGX_H100]
EXPECTS = expects_of(PRESET, Board(PRESET.gpus, PRESET.switches, PRESET.extra_functions))


@pytest.fixture(scope="module")
def prepared(hosts_pool: Any) -> SimulatedHost:
    (made,) = hosts_pool.add(1, "supermicro-hgx-h100")
    return made


@pytest.fixture
def machine(prepared: SimulatedHost) -> Iterator[SimulatedHost]:
    """One host for all faults of this module, which are taken off again."""
    yield prepared
    prepared.clear_faults()


def wanted(host: SimulatedHost, stage: str = "prepared", **changes: Any) -> dict[str, Any]:
    return {
        "connection": host.connection,
        "stage": stage,
        "expects": {**EXPECTS.model_dump(mode="json"), **changes},
    }


def found(
    host: SimulatedHost, stage: Stage = Stage.PREPARED, expects: Expects = EXPECTS
) -> list[str]:
    facts = read_facts(host.ssh, expects.functions)
    return [finding.code.removeprefix("preflight.") for finding in judge(facts, expects, stage)]


def test_a_prepared_host_passes_both_stages_with_one_command(machine: SimulatedHost) -> None:
    machine.forget()
    assert found(machine) == found(machine, Stage.BARE) == []
    assert len(machine.commands()) == 2, "one command each"
    assert len(machine.journal("connection")) == 1


K = faults
# What can be wrong at the same time on one machine, each beside the finding that names it.
TOGETHER: dict[str, list[tuple[str, Any]]] = {
    "account": [("sudo-password", faults.SudoNeedsPassword())],
    "firmware setup": [
        ("iommu-firmware-off", K.IommuOff()),
        ("virtualization-off", K.Processor(without=("vmx",))),
        ("bar-not-placed", K.BarWrong(module=1)),
        ("bar-below-4g", K.BarWrong(module=2, how="below-4g")),
        ("numa-nodes", K.NumaNodes()),
        ("kvm-missing", K.ProgramMissing(program="kvm")),
        ("clock-skew", K.ClockSkewed()),
    ],
    "kernel": [
        ("iommu-off", K.IommuOff(where="kernel")),
        ("host-is-virtual", K.Processor(having=("hypervisor",))),
        ("kernel-old", K.OldVersion()),
        ("driver-loaded", K.HostDriver(driver="nouveau")),
    ],
    "board": [
        ("acs-missing", K.AcsMissing(modules=(5, 7))),
        ("foreign-in-group", K.ForeignDevice(module=1)),
        ("function-missing", K.GpuMissing(module=3)),
        ("wrong-function", K.OtherDevice(module=4)),
        ("off-the-bus", faults.GpuFellOffTheBus(module=2)),
        ("bar-size", K.BarWrong(module=6, how="small")),
        ("reset-missing", faults.ResetNotSupported(module=8)),
        ("not-on-vfio", K.NotOnVfio(module=8)),
        ("vfio-node-missing", K.VfioNodeMissing(module=6)),
        ("memory-short", K.MemoryLost()),
    ],
    "software": [
        ("driver-installed", K.HostDriver(how="installed")),
        ("qemu-old", K.OldVersion(program="qemu", version="8.2.2")),
        ("libvirt-old", K.OldVersion(program="libvirt", version="8.0.0")),
        ("ovmf-missing", K.ProgramMissing(program="ovmf")),
        ("disk-short", K.DiskNearlyFull()),
    ],
    "packages": [
        ("qemu-missing", K.ProgramMissing(program="qemu")),
        ("libvirt-missing", K.ProgramMissing(program="libvirt")),
    ],
}


@pytest.mark.parametrize("group", TOGETHER)
def test_each_fault_of_a_machine_is_found_by_name_beside_the_others(
    machine: SimulatedHost, group: str
) -> None:
    injected = TOGETHER[group]
    machine.inject(*(fault for _, fault in injected))
    assert {name for name, _ in injected} <= set(found(machine))


def test_no_fault_leaves_anything_behind(machine: SimulatedHost) -> None:
    machine.inject(*(fault for group in TOGETHER.values() for _, fault in group))
    machine.clear_faults()
    assert found(machine) == []


def test_up_stops_with_everything_that_is_wrong_and_changes_nothing(
    machine: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(machine)
    machine.inject(K.GpuMissing(module=3), K.ForeignDevice(module=1), K.DiskNearlyFull(free_gib=3))
    machine.forget()
    with pytest.raises(StepFailed) as failed:
        provider.create(PreflightProvider, wanted(machine, "bare"))
    text = str(failed.value)
    assert f"{machine.name} (127.0.0.1:" in text
    assert "3 findings; nothing was changed" in text
    for name in ("function-missing", "foreign-in-group", "disk-short"):
        assert f"preflight.{name}: " in text
        assert codes.listed()[f"preflight.{name}"].do in text
    assert "Traceback" not in text
    assert len(machine.commands()) == 1


def test_what_was_found_is_kept_and_a_second_up_is_empty(
    machine: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(machine)
    news = wanted(machine)
    made = provider.create(PreflightProvider, news)
    assert made.id == f"{machine.name}/preflight-prepared"
    assert made.outputs["memory_gib"] > 1900
    assert made.outputs["qemu"] == "10.1.0"
    assert made.outputs["findings"] == made.outputs["warnings"] == []
    gpu = made.outputs["gpus"][PRESET.gpus[1]]
    assert (gpu["driver"], gpu["iommu_group"], gpu["numa_node"]) == ("vfio-pci", "91", 1)
    assert not provider.diff(PreflightProvider, made.outputs, news).changes
    live = provider.read(PreflightProvider, made)
    assert live.outputs == made.outputs
    assert not provider.diff(PreflightProvider, live.outputs, news).changes


def test_a_refresh_tells_what_went_wrong_since_and_the_next_up_looks_again(
    machine: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(machine)
    made = provider.create(PreflightProvider, wanted(machine))
    machine.inject(faults.GpuFellOffTheBus(module=2), K.OldVersion())
    live = provider.read(PreflightProvider, made)
    assert [f["code"] for f in live.outputs["findings"]] == ["preflight.off-the-bus"]
    assert [w["code"] for w in live.outputs["warnings"]] == ["preflight.kernel-old"]
    made.outputs = live.outputs
    assert provider.diff(PreflightProvider, live.outputs, wanted(machine)).changes
    with pytest.raises(StepFailed, match=r"preflight\.off-the-bus"):
        provider.update(PreflightProvider, made, wanted(machine))
    machine.clear_faults()
    assert provider.update(PreflightProvider, made, wanted(machine)).outputs["findings"] == []
    machine.inject(faults.RefuseConnections())
    provider.delete(PreflightProvider, made)  # touches nothing, even when the host is gone


@pytest.fixture(scope="module")
def fresh(hosts_pool: Any) -> SimulatedHost:
    """One host on which nothing was prepared."""
    (made,) = hosts_pool.add(1, "supermicro-hgx-h100", condition="bare")
    return made


def test_a_bare_host_can_be_prepared_and_is_not_ready(fresh: SimulatedHost) -> None:
    assert found(fresh, Stage.BARE) == ["fuser-missing"]
    fresh.sudo("apt-get install -y psmisc")
    assert found(fresh, Stage.BARE) == []
    assert {
        "iommu-off",
        "driver-loaded",
        "not-on-vfio",
        "qemu-missing",
        "libvirt-missing",
    } <= set(found(fresh))


def test_a_gpu_that_somebody_uses_is_not_taken(fresh: SimulatedHost) -> None:
    fresh.inject(faults.DeviceHeld(address=PRESET.gpus[1]))
    assert found(fresh, Stage.BARE) == ["gpus-in-use"]
