"""Active partitions of a board, through the SDK's provider process and `fmpm` over real SSH."""

import threading
from typing import Any

import pytest

from gpuclusters.fabric.resource import FabricPartitionsProvider
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import UNKNOWN, StepFailed

SINGLES, PAIRS = list(range(7, 15)), [3, 4, 5, 6]
GPUS = {
    str(module): f"0000:{bus}:00.0"
    for module, bus in enumerate(("86", "b8", "87", "bb", "0f", "41", "10", "44"), start=1)
}


def wanted(host: SimulatedHost, partitions: Any, **changes: Any) -> dict[str, Any]:
    return {
        "connection": host.connection,
        "board": "board-0",
        "baseboard": "hgx-h100",
        "partitions": partitions,
        "gpus": GPUS,
    } | changes


def test_a_layout_becomes_another_one_in_place_and_goes_away(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host)
    made = provider.create(FabricPartitionsProvider, wanted(host, SINGLES))
    assert made.id == f"{host.name}/board-0"
    assert host.active_partitions() == made.outputs["active"] == SINGLES
    assert made.outputs["gpus_by_partition"]["7"] == [1]

    pairs = wanted(host, PAIRS)
    difference = provider.diff(FabricPartitionsProvider, made.outputs, pairs)
    assert (difference.changes, difference.replaces) == (True, [])
    made = provider.update(FabricPartitionsProvider, made, pairs)
    assert host.active_partitions() == PAIRS
    assert made.outputs["gpus_by_partition"]["3"] == [1, 3]
    assert not provider.diff(FabricPartitionsProvider, made.outputs, pairs).changes

    made = provider.update(FabricPartitionsProvider, made, wanted(host, SINGLES))
    assert host.active_partitions() == SINGLES
    provider.delete(FabricPartitionsProvider, made)
    assert host.active_partitions() == []
    provider.delete(FabricPartitionsProvider, made)


def test_a_partition_in_use_is_never_deactivated_and_nothing_else_is_touched(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host)
    made = provider.create(FabricPartitionsProvider, wanted(host, SINGLES))
    host.set_partition_in_use(9, "vm-acme")
    for act in (
        lambda: provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS)),
        lambda: provider.delete(FabricPartitionsProvider, made),
    ):
        with pytest.raises(StepFailed) as failed:
            act()
        assert "GPU 3 (0000:87:00.0) by process" in str(failed.value)
        assert "stop the VMs" in str(failed.value)
        assert host.active_partitions() == SINGLES
    assert host.journal("harm") == []

    # What stays may be in use: 9 is kept, the others make room.
    kept = wanted(host, [9, 2])
    provider.update(FabricPartitionsProvider, made, kept)
    assert host.active_partitions() == [2, 9]
    assert host.journal("harm") == []


def test_without_pci_addresses_nothing_is_deactivated(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host)
    made = provider.create(FabricPartitionsProvider, wanted(host, SINGLES, gpus={}))
    with pytest.raises(StepFailed, match="give the PCI addresses by module number"):
        provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS, gpus={}))
    assert host.active_partitions() == SINGLES


def test_a_restarted_fabric_manager_is_told_what_was_active(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host)
    made = provider.create(FabricPartitionsProvider, wanted(host, SINGLES))
    host.set_partition_in_use(7, "vm-acme")
    host.sudo("systemctl restart nvidia-fabricmanager")

    live = provider.read(FabricPartitionsProvider, made)
    assert live.outputs["active"] == live.inputs["partitions"] == []
    assert provider.diff(FabricPartitionsProvider, live.outputs, wanted(host, SINGLES)).changes

    # Also after the refresh has written "nothing active" into the state.
    made.outputs = live.outputs
    provider.update(FabricPartitionsProvider, made, wanted(host, SINGLES))
    assert host.active_partitions() == SINGLES
    told = [e for e in host.journal("command") if "--set-activated-list" in e["command"]]
    assert "7,8,9,10,11,12,13,14" in told[-1]["command"]
    assert host.journal("harm") == []


def test_a_fabric_manager_that_initialises_is_waited_for(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    host.inject(faults.FabricManager(state="restarting"))
    timer = threading.Timer(1.5, host.clear_faults)
    timer.start()
    try:
        start_provider(host).create(FabricPartitionsProvider, wanted(host, PAIRS))
    finally:
        timer.join()
    assert host.active_partitions() == PAIRS


def test_a_deactivation_by_hand_shows_after_a_refresh_and_is_put_back(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host)
    made = provider.create(FabricPartitionsProvider, wanted(host, PAIRS))
    host.sudo("fmpm -d 4")
    live = provider.read(FabricPartitionsProvider, made)
    assert live.inputs["partitions"] == live.outputs["active"] == [3, 5, 6]
    assert provider.diff(FabricPartitionsProvider, live.outputs, wanted(host, PAIRS)).changes
    provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert host.active_partitions() == PAIRS


def test_an_interrupted_change_converges_when_run_again(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    first = start_provider(host, own=True)
    made = first.create(FabricPartitionsProvider, wanted(host, SINGLES))
    host.inject(faults.FabricAnswers(operation="activate", partition=4, code=-2))
    with pytest.raises(StepFailed, match="activate partition 4"):
        first.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    first.kill()
    host.clear_faults()
    assert host.active_partitions() == [3]  # half-way
    second = start_provider(host)
    second.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert host.active_partitions() == PAIRS


def test_a_board_with_another_table_is_refused_with_both_sides(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    with pytest.raises(StepFailed) as failed:
        start_provider(host).create(
            FabricPartitionsProvider, wanted(host, [2], baseboard="hgx-b200")
        )
    message = str(failed.value)
    assert "partition 15 is GPUs 8 in the table of hgx-b200 and absent on the board" in message
    assert "partition 0 is absent in the table of hgx-b200 and GPUs 1, 2, 3" in message
    assert host.active_partitions() == []


def test_what_a_failed_gpu_takes_along_is_reported_and_refused_where_it_is_wanted(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    host.inject(faults.PartitionUnsupported(module=8), faults.LinksDegraded(module=2, available=9))
    provider = start_provider(host)
    made = provider.create(FabricPartitionsProvider, wanted(host, [1]))
    unsupported, links = made.outputs["warnings"]
    assert "partitions 0, 2, 6, 14 are not supported at the moment because GPUs 8" in unsupported
    assert "GPU 2 has 9 of 18 NVLinks" in links
    with pytest.raises(
        StepFailed, match=r"partitions 2 are wanted.*GPUs 8 \(0000:44:00.0\) failed"
    ):
        provider.update(FabricPartitionsProvider, made, wanted(host, [1, 2]))
    assert host.active_partitions() == [1]


def test_gpus_in_other_modules_stop_the_step_before_any_change(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    host.inject(faults.ModuleMapShuffled(modules=(1, 2)))
    with pytest.raises(StepFailed) as failed:
        start_provider(host).create(FabricPartitionsProvider, wanted(host, PAIRS))
    assert '"1": "0000:b8:00.0"' in str(failed.value)
    assert host.active_partitions() == []
    assert not any("fmpm" in command for command in host.commands())


def test_a_layout_of_sizes_is_cut_around_a_running_vm(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host)
    halves = {key: value for key, value in wanted(host, None, layout=[4, 4]).items() if value}
    made = provider.create(FabricPartitionsProvider, halves)
    assert made.outputs["active"] == made.outputs["applied"] == [1, 2]
    host.set_partition_in_use(2, "vm-acme")
    finer = halves | {"layout": [4, 2, 2]}
    assert provider.diff(FabricPartitionsProvider, made.outputs, finer).changes
    made = provider.update(FabricPartitionsProvider, made, finer)
    assert host.active_partitions() == made.outputs["active"] == [2, 3, 4]
    live = provider.read(FabricPartitionsProvider, made)
    assert not provider.diff(FabricPartitionsProvider, live.outputs, finer).changes
    host.sudo("fmpm -d 3")
    live = provider.read(FabricPartitionsProvider, made)
    assert provider.diff(FabricPartitionsProvider, live.outputs, finer).changes


def test_a_change_of_any_size_takes_three_round_trips_on_one_connection(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host)
    made = provider.create(FabricPartitionsProvider, wanted(host, SINGLES))
    host.forget()
    provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert len(host.commands()) == 3, host.commands()  # list, who uses them, change
    host.forget()
    provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert len(host.commands()) == 1


@pytest.mark.parametrize("after", ["list", "deactivate"])
def test_a_fabric_manager_that_restarts_in_between_is_told_and_carried_on_with(
    host: SimulatedHost, start_provider: StartProvider, after: Any
) -> None:
    provider = start_provider(host)
    made = provider.create(FabricPartitionsProvider, wanted(host, [1, 11, 12, 13, 14]))
    host.set_partition_in_use(14, "vm-acme")
    host.inject(faults.FabricRestarts(after=after))
    provider.update(FabricPartitionsProvider, made, wanted(host, [3, 4, 5, 12, 14]))
    assert host.active_partitions() == [3, 4, 5, 12, 14]
    assert host.journal("harm") == []


def test_a_gpu_that_a_lease_has_just_marked_stops_the_change_before_its_first_step(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host)
    made = provider.create(FabricPartitionsProvider, wanted(host, SINGLES))
    host.sudo(f"mkdir -p /run/gpu-clusters-leases/{GPUS['8']}")
    with pytest.raises(StepFailed, match=r"deactivate partition 14 \(GPUs 8\): a lease"):
        provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert host.active_partitions() == SINGLES


def test_a_gpu_that_is_recycled_is_neither_drift_nor_brought_up(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host)
    made = provider.create(FabricPartitionsProvider, wanted(host, SINGLES))
    withheld = f"/var/lib/gpu-clusters/withheld/{GPUS['8']}"
    host.sudo(f"mkdir -p {withheld}")
    host.sudo("fmpm -d 14")
    live = provider.read(FabricPartitionsProvider, made)
    assert live.inputs["partitions"] == live.outputs["active"] == SINGLES
    assert live.outputs == made.outputs
    assert not provider.diff(FabricPartitionsProvider, live.outputs, wanted(host, SINGLES)).changes

    made = provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert host.active_partitions() == [3, 4, 5]
    assert made.outputs["active"] == PAIRS
    assert made.outputs["gpus_by_partition"]["6"] == [6, 8]
    assert made.outputs["warnings"] == []

    host.sudo(f"mkdir -p {withheld}/quarantined")
    live = provider.read(FabricPartitionsProvider, made)
    assert "GPU 8 (0000:44:00.0) is in quarantine: partitions 6" in live.outputs["warnings"][0]
    assert not provider.diff(FabricPartitionsProvider, live.outputs, wanted(host, PAIRS)).changes

    host.sudo(f"rm -rf {withheld}")
    live = provider.read(FabricPartitionsProvider, made)
    assert live.outputs["active"] == [3, 4, 5]
    assert provider.diff(FabricPartitionsProvider, live.outputs, wanted(host, PAIRS)).changes
    provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert host.active_partitions() == PAIRS
    assert host.journal("harm") == []


@pytest.mark.parametrize("code", [-22])
def test_a_code_that_passes_is_waited_for(
    host: SimulatedHost, start_provider: StartProvider, code: int
) -> None:
    host.inject(faults.FabricAnswers(operation="activate", partition=4, code=code, times=1))
    start_provider(host).create(FabricPartitionsProvider, wanted(host, PAIRS))
    assert host.active_partitions() == PAIRS


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (faults.FabricManager(state="version-mismatch"), ["-6, version mismatch", "install"]),
        (faults.FabricManager(state="not-supported"), ["-3, not supported", "FABRIC_MODE=1"]),
        (faults.FabricManager(state="nvlink-error"), ["-10, NVLink error", "quarantine"]),
        (faults.PartitionBusy(partition=3), ["activate partition 3", "-12, resource in use"]),
    ],
    ids=["version", "mode", "nvlink", "busy"],
)
def test_what_the_fabric_manager_says_is_explained(
    host: SimulatedHost, start_provider: StartProvider, fault: Any, said: list[str]
) -> None:
    host.inject(fault)
    with pytest.raises(StepFailed) as failed:
        start_provider(host).create(FabricPartitionsProvider, wanted(host, PAIRS))
    assert f"{host.name} (" in str(failed.value)
    assert "board board-0" in str(failed.value)
    for part in said:
        assert part in str(failed.value)


def test_check_refuses_a_gpu_in_two_partitions_and_ids_of_another_board(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider()

    def faults_of(partitions: Any, **changes: Any) -> dict[str, str]:
        return provider.check(FabricPartitionsProvider, wanted(host, partitions, **changes))

    assert faults_of(SINGLES, connection=UNKNOWN) == {}
    assert faults_of([UNKNOWN, 3]) == {}
    assert "GPUs 1 are in two of them" in faults_of([3, 7])["partitions"]
    assert "GPUs 1 are in two of them" in faults_of([7, 7])["partitions"]
    assert "has no partition 15" in faults_of([15])["partitions"]
    assert faults_of([15], baseboard="hgx-b200") == {}
    assert "baseboard" in faults_of([0], baseboard="hgx-v100")
    assert "give the board's own table" in faults_of([0], baseboard="hgx-a100")["table"]
    assert (
        "exactly equal"
        in faults_of([0], fabric_manager_version="595.58.04", guest_driver="595.58.03")[
            "fabric_manager_version"
        ]
    )
    assert faults_of([0], fabric_manager_version=UNKNOWN, guest_driver="595.58.03") == {}
    assert "two modules" in faults_of([0], gpus={"1": GPUS["1"], "2": GPUS["1"]})["gpus"]
