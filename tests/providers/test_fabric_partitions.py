"""Active partitions of a board, through the SDK's provider process and `fmpm` over real SSH."""

from typing import Any

import pytest

from gpuclusters.fabric.resource import FabricPartitionsProvider
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.providers.provider_process import ProviderProcess, StepFailed

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
    host: SimulatedHost, provider: ProviderProcess
) -> None:
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


def test_a_partition_in_use_is_never_deactivated_and_nothing_else_is_touched(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
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


def test_a_deactivation_by_hand_shows_after_a_refresh_and_is_put_back(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(FabricPartitionsProvider, wanted(host, PAIRS))
    host.sudo("fmpm -d 4")
    live = provider.read(FabricPartitionsProvider, made)
    assert live.inputs["partitions"] == live.outputs["active"] == [3, 5, 6]
    assert provider.diff(FabricPartitionsProvider, live.outputs, wanted(host, PAIRS)).changes
    provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert host.active_partitions() == PAIRS


def test_what_a_failed_gpu_takes_along_is_reported_and_refused_where_it_is_wanted(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    host.inject(faults.PartitionUnsupported(module=8), faults.LinksDegraded(module=2, available=9))
    made = provider.create(FabricPartitionsProvider, wanted(host, [1]))
    unsupported, links = made.outputs["warnings"]
    assert "partitions 0, 2, 6, 14 are not supported at the moment because GPUs 8" in unsupported
    assert "GPU 2 has 9 of 18 NVLinks" in links
    with pytest.raises(
        StepFailed, match=r"partitions 2 are wanted.*GPUs 8 \(0000:44:00.0\) failed"
    ):
        provider.update(FabricPartitionsProvider, made, wanted(host, [1, 2]))
    assert host.active_partitions() == [1]


def test_a_change_of_any_size_takes_three_round_trips_on_one_connection(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(FabricPartitionsProvider, wanted(host, SINGLES))
    host.forget()
    provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert len(host.commands()) == 3, host.commands()  # list, who uses them, change
    host.forget()
    provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert len(host.commands()) == 1


def test_a_gpu_that_a_lease_has_just_marked_stops_the_change_before_its_first_step(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(FabricPartitionsProvider, wanted(host, SINGLES))
    host.sudo(f"mkdir -p /run/gpu-clusters-leases/{GPUS['8']}")
    with pytest.raises(StepFailed, match=r"deactivate partition 14 \(GPUs 8\): a lease"):
        provider.update(FabricPartitionsProvider, made, wanted(host, PAIRS))
    assert host.active_partitions() == SINGLES
