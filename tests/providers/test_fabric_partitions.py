"""Active partitions of a board, through the SDK's provider process and `fmpm` over real SSH."""

import pytest

from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.providers.provider_process import INPUTS, ProviderProcess, Resource

SINGLES, PAIRS = list(range(7, 15)), [3, 4, 5, 6]
GPUS = INPUTS["FabricPartitions"]["gpus"]


@pytest.fixture
def board(host: SimulatedHost, provider: ProviderProcess) -> Resource:
    return provider.on("FabricPartitions", host)


def test_a_layout_becomes_another_one_in_place_and_goes_away(
    host: SimulatedHost, board: Resource
) -> None:
    made = board.create()
    assert board.id == f"{host.name}/board-0"
    assert host.active_partitions() == made["active"] == SINGLES
    assert made["gpus_by_partition"]["7"] == [1]
    difference = board.diff(partitions=PAIRS)
    assert (difference.changes, difference.replaces) == (True, [])

    # A change of any size takes three round trips on one connection: list, who uses them, change.
    host.forget()
    made = board.update(partitions=PAIRS)
    assert len(host.commands()) == 3, host.commands()
    assert host.active_partitions() == PAIRS
    assert made["gpus_by_partition"]["3"] == [1, 3]
    assert not board.differs(partitions=PAIRS)
    host.forget()
    board.update(partitions=PAIRS)
    assert len(host.commands()) == 1

    host.sudo("fmpm -d 4")
    live = board.refresh()
    assert live.inputs["partitions"] == live.outputs["active"] == [3, 5, 6]
    assert board.differs(partitions=PAIRS)
    board.update(partitions=PAIRS)
    assert host.active_partitions() == PAIRS
    board.delete()
    assert host.active_partitions() == []


def test_a_partition_in_use_is_never_deactivated_and_nothing_else_is_touched(
    host: SimulatedHost, board: Resource
) -> None:
    board.create()
    host.sudo(f"mkdir -p /run/gpu-clusters-leases/{GPUS['8']}")
    board.refused("update", "deactivate partition 14 (GPUs 8): a lease", partitions=PAIRS)
    assert host.active_partitions() == SINGLES
    host.sudo(f"rmdir /run/gpu-clusters-leases/{GPUS['8']}")

    host.set_partition_in_use(9, "vm-acme")
    for act, changes in (("update", {"partitions": PAIRS}), ("delete", {})):
        board.refused(act, "GPU 3 (0000:87:00.0) by process", "stop the VMs", **changes)
        assert host.active_partitions() == SINGLES
    # What stays may be in use: 9 is kept, the others make room.
    board.update(partitions=[9, 2])
    assert host.active_partitions() == [2, 9]
    assert host.journal("harm") == []


def test_what_a_failed_gpu_takes_along_is_reported_and_refused_where_it_is_wanted(
    host: SimulatedHost, board: Resource
) -> None:
    host.inject(faults.PartitionUnsupported(module=8), faults.LinksDegraded(module=2, available=9))
    unsupported, links = board.create(partitions=[1])["warnings"]
    assert "partitions 0, 2, 6, 14 are not supported at the moment because GPUs 8" in unsupported
    assert "GPU 2 has 9 of 18 NVLinks" in links
    failed = ("partitions 2 are wanted", "GPUs 8 (0000:44:00.0) failed")
    board.refused("update", *failed, partitions=[1, 2])
    assert host.active_partitions() == [1]
