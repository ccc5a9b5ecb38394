"""The module map of a host, through its script over real SSH."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.core.errors import CommandFailedError
from gpuclusters.core.finding import Refused
from gpuclusters.fabric import manager
from gpuclusters.fabric.decide import require_map
from gpuclusters.fabric.manager import SshModuleMap
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost

GPUS = PRESETS[Platform.SUPERMICRO_HGX_H100].gpus
ADDRESSES = sorted(GPUS.values())
KEPT = "/run/gpu-clusters/gpu-modules"


@pytest.fixture
def host(machine: SimulatedHost) -> Iterator[SimulatedHost]:
    """A machine as if it had just booted."""
    machine.path(KEPT).unlink(missing_ok=True)
    manager._READ.clear()
    machine.forget()
    yield machine
    for partition in range(15):
        machine.set_partition_in_use(partition, None)


def reached(host: SimulatedHost) -> SshModuleMap:
    return SshModuleMap(host.ssh)


def asked(host: SimulatedHost) -> list[str]:
    lines = [str(e["command"]) for e in host.journal("stand-in")]
    return [line for line in lines if line.startswith("nvidia_gpu_tools.py")]


def test_the_gpus_say_where_they_sit_and_are_asked_once_a_boot(host: SimulatedHost) -> None:
    assert dict(reached(host).read(ADDRESSES).modules) == {a: m for m, a in GPUS.items()}
    assert len(asked(host)) == 1
    reached(host).read(ADDRESSES)
    assert len(host.commands()) == 1  # known in this run, by whomever it was asked
    manager._READ.clear()  # another run on the same boot
    assert len(reached(host).read(ADDRESSES).modules) == 8
    assert len(asked(host)) == 1
    manager._READ.clear()
    text = host.path(KEPT).read_text()
    host.path(KEPT).write_text(re.sub("^boot .*", "boot another", text))
    assert len(reached(host).read(ADDRESSES).modules) == 8
    assert len(asked(host)) == 2


def test_gpus_that_changed_places_are_refused_with_both_maps_and_what_to_write(
    host: SimulatedHost,
) -> None:
    host.inject(faults.ModuleMapShuffled(modules=(3, 6)))
    with pytest.raises(Refused) as refused:
        require_map("hgx-01", GPUS, reached(host).read(ADDRESSES))
    said = str(refused.value)
    assert "GPUs 3, 6 are not at the PCI addresses" in said
    assert re.search(r"3 +0000:87:00.0 +0000:41:00.0  <--", said)
    assert re.search(r"1 +0000:86:00.0 +0000:86:00.0\n", said)
    assert '    "3": "0000:41:00.0"\n' in said
    assert said.count('": "0000:') == 8


def test_a_gpu_that_a_vm_has_is_not_touched_and_known_from_before(host: SimulatedHost) -> None:
    host.set_partition_in_use(3, "vm-acme")  # GPUs 1 and 3
    reading = reached(host).read(ADDRESSES)
    assert sorted(reading.held) == ["0000:86:00.0", "0000:87:00.0"]
    assert len(reading.modules) == 6
    assert not any("86:00.0" in line or "87:00.0" in line for line in asked(host))
    require_map("hgx-01", GPUS, reading)
    host.set_partition_in_use(3, None)
    assert len(reached(host).read(ADDRESSES).modules) == 8
    host.set_partition_in_use(3, "vm-acme")
    manager._READ.clear()
    assert len(reached(host).read(ADDRESSES).modules) == 8


@pytest.mark.parametrize(
    ("fault", "refusal", "said"),
    [
        # At the first address: the tool stops there.
        (
            faults.ModuleNameUnknown(module=5),
            Refused,
            r"(?s)GPU 5 \(0000:0f:00\.0\).*does not support module name query",
        ),
        (faults.GpuFellOffTheBus(module=4), Refused, r"GPU 4 \(0000:bb:00.0\)"),
        (
            faults.ToolMissing(tool="nvidia_gpu_tools.py"),
            CommandFailedError,
            "gpu-admin-tools",
        ),
    ],
    ids=["does not answer", "off the bus", "no tool"],
)
def test_a_gpu_that_says_nothing_is_refused_by_name(
    host: SimulatedHost, fault: Any, refusal: type[Exception], said: str
) -> None:
    host.inject(fault)
    with pytest.raises(refusal, match=said):
        require_map("hgx-01", GPUS, reached(host).read(ADDRESSES))
