"""What all resources of a machine do alike: cut off they go on, at rest they are quiet, gone is gone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gpuclusters.cdi.resource import CdiSpecProvider
from gpuclusters.driver.resource import GpuDriverProvider
from gpuclusters.fabric.resource import FabricPartitionsProvider
from gpuclusters.host.resource import HostFileProvider
from gpuclusters.rke2.resource import Rke2NodeProvider
from gpuclusters.rootless.resource import RootlessHostProvider
from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.providers import test_cdi_spec as cdi
from tests.providers import test_fabric_partitions as fabric
from tests.providers import test_gpu_driver as driver
from tests.providers import test_host_file as file
from tests.providers import test_rootless_host as rootless
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Properties
from tests.providers.rke2kit import Cluster

ACTS = ("packages", "rootless", "user-manager", "cdi", "container", "rke2", "power", "fabric")
"""What a journal tells of changes."""


@dataclass(frozen=True)
class Kind:
    """One kind of resource: on which machine it is tried, with which inputs, and where it is cut off."""

    provider: type[Any]
    inputs: Callable[[SimulatedHost], Properties]
    cut: tuple[str, ...]
    """The connection breaks before a command with these words, in each of as many runs."""
    platform: str = "supermicro-hgx-h100"
    condition: str = "prepared"
    made: tuple[tuple[str, Any], ...] = (("drift", []),)
    goes: bool = True
    """Whether it is gone after a removal; the partitions of a board are none then."""


KINDS = {
    "file": Kind(HostFileProvider, file.wanted, (f"{file.PATH} 0644",)),
    "cdi": Kind(CdiSpecProvider, cdi.wanted, (r"/etc/cdi",)),
    "partitions": Kind(
        FabricPartitionsProvider,
        lambda host: fabric.wanted(host, fabric.SINGLES),
        (".",),
        made=(("active", fabric.SINGLES),),
        goes=False,
    ),
    "driver": Kind(
        GpuDriverProvider,
        driver.inputs,
        # A file, the packages, the initramfs, the holds, the restart, the fabric manager, the mark.
        (
            r"/etc/modprobe\.d/gpu-clusters-nouveau\.conf 0644",
            "-- debian none linux-modules",
            r"-- 'grub\.d'|-- grub\.d no",
            r"-- debian linux-image-generic",
            r"^.*sh -s --\s*$",
            r"apply nvidia-fabricmanager",
            r"-- [0-9a-f]{64}$",
        ),
        "plain-gpu-a100",
        "bare",
        made=(("drift", []), ("gpu_count", 8)),
    ),
    "docker": Kind(
        RootlessHostProvider,
        rootless.inputs,
        # Between files and their effect, before lingering, before the daemon's unit, before the mark.
        (r"-- [0-9a-f]{64} gpu", r"-- linger ", r"-- setup$", r"-- '[0-9a-f]{64} "),
        "plain-gpu-v100",
    ),
    "rke2": Kind(
        Rke2NodeProvider,
        # Without its account and kernel parameters RKE2 with the CIS profile ends at once.
        lambda host: Cluster([host], None).inputs(host, cis=True),
        # Before it prepares, installs, starts, and says that it is done.
        tuple(
            f"sh -s -- {words}"
            for words in ("cis$", r"v1\S+ cis$", r"rke2-server\.service$", "applied")
        ),
        "plain-server",
        made=(("joined", True), ("drift", [])),
    ),
}


def acts(host: SimulatedHost) -> list[Any]:
    return [entry for event in ACTS for entry in host.journal(event)]


@pytest.mark.parametrize("name", KINDS)
def test_a_resource_is_made_however_often_it_is_cut_off_stays_as_it_is_and_goes(
    hosts: Hosts, start_provider: StartProvider, name: str
) -> None:
    kind = KINDS[name]
    (host,) = hosts(1, platform=kind.platform, condition=kind.condition)
    one = start_provider(host).of(kind.provider, kind.inputs(host))
    for words in kind.cut:
        host.inject(faults.CommandFails(command=words, exit=255, times=1))
        one.refused("create")
        host.clear_faults()
    made = one.create()
    for output, value in kind.made:
        assert made[output] == value

    host.forget()
    before = one.id
    one.create()
    assert one.id == before
    for act in (one.update, one.refresh):
        assert not one.differs()
        act()
    assert acts(host) == []
    assert not one.differs()

    one.delete()
    one.delete()
    assert (one.look().id == "") is kind.goes
