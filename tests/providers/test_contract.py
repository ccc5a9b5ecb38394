"""What all resources of a machine do alike: cut off they go on, at rest they are quiet, gone is gone."""

from typing import Any

import pytest

from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.tables import beside
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import inputs_of
from tests.providers.rke2kit import Cluster

ACTS = ("packages", "rootless", "user-manager", "cdi", "container", "rke2", "power", "fabric")
"""What a journal tells of changes."""
KINDS = beside(__file__, "contract.yaml")


def acts(host: SimulatedHost) -> list[Any]:
    return [entry for event in ACTS for entry in host.journal(event)]


@pytest.mark.parametrize("name", KINDS)
def test_a_resource_is_made_however_often_it_is_cut_off_stays_as_it_is_and_goes(
    hosts: Hosts, start_provider: StartProvider, name: str
) -> None:
    kind = {"platform": "supermicro-hgx-h100", "condition": "prepared", **KINDS[name]}
    (host,) = hosts(1, platform=kind["platform"], condition=kind["condition"])
    # Without its account and kernel parameters RKE2 with the CIS profile ends at once.
    rke2 = name == "Rke2Node"
    inputs = Cluster([host], None).inputs(host, cis=True) if rke2 else inputs_of(name, host)
    one = start_provider(host).of(name, inputs)
    for words in kind["cut"]:
        host.inject(faults.CommandFails(command=words, exit=255, times=1))
        one.refused("create")
        host.clear_faults()
    made, wanted = one.create(), kind.get("made", {"drift": []})
    assert {output: made[output] for output in wanted} == wanted

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
    assert (one.look().id != "") is kind.get("stays", False)
