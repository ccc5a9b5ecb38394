"""A cluster made by an `up` that is killed at every kind of its steps; it is changed, then drifts by hand.

That what acts may die anywhere is shown where it can be killed at each of its commands, writes and waits:
tests/providers/test_killed_at_every_command.py, tests/engine/test_kills.py, tests/engine/test_saving.py and
tests/caas/test_killed_at_every_await.py. Here one step of each kind is killed, among all the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from lab.hosts import faults, injecting
from tests.e2e.conftest import Checkout, checkout, settled
from tests.e2e.drifting_labs import (
    KUBELET,
    by_hand_in_the_cluster,
    by_hand_on_the_machines,
    check,
    drift,
    state_of,
    told,
)
from tests.e2e.killing import ENDS, Kill, up_through_kills

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900)]

KILLS = (
    Kill("CustomResourceDefinition", "engine"),
    Kill("HostFile", "engine", event=ENDS),
    Kill("HostBoot", "everything", seconds=1),  # the machine is on its way down
    Kill("ServiceVm", "ctrl-c"),
    Kill("FabricPartitions", "engine", by_hand="kata-system/kata-deploy"),
    Kill("Release", "everything", seconds=0.5),  # Helm is at work
    Kill("TenancyPolicy", "engine"),
)
COMMITTED = [1, 5, 12, 14]
"""Of the layout 4, 2, 1, 1."""
PAIRS = [3, 4, 5, 6]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here."""
    with checkout(tmp_path_factory.mktemp("kill")) as dev:
        dev.only("caas")
        met = up_through_kills(dev, KILLS)
        assert len(met) >= len(KILLS) - 1, met
        yield dev


def test_an_up_killed_at_every_kind_of_step_converges(cluster: Checkout) -> None:
    settled(cluster)


def kinds(steps: list[dict[str, object]]) -> list[str]:
    """`op Class name` of each step."""
    return sorted(
        f"{s['op']} {str(s['urn']).rsplit('::', 2)[1].rsplit('$', 1)[-1].rsplit(':', 1)[-1]} "
        f"{str(s['urn']).rsplit('::', 1)[-1]}"
        for s in steps
    )


def test_another_layout_updates_the_boards_in_place_and_a_partition_in_use_holds_up_its_board_alone(
    dev: Checkout,
) -> None:
    folder = dev.lab / "hosts"
    dev.configure(partition_layout=[2, 2, 2, 2])
    assert kinds(dev.plan()) == [
        # The programs read which partitions may be leased; their pods carry the digest of the settings.
        "update ConfigMap system-api-settings",
        "update ConfigMap system-controllers-settings",
        "update ConfigMap system-device-plugin-settings",
        "update DaemonSet programs-device-plugin",
        "update Deployment programs-api",
        "update Deployment programs-controllers",
        "update FabricPartitions hgx-01-fabric",
        "update FabricPartitions hgx-02-fabric",
        # How many GPUs a container may ask for follows the layout.
        "update TenancyPolicy acme-policy",
        "update TenancyPolicy globex-policy",
    ]
    injecting.set_partition_in_use(folder, "hgx-01", 1, "vm-acme")
    try:
        done = dev.run("up")
        assert done.returncode == 1
        said = done.stdout + done.stderr
        assert "hgx-01" in said
        assert "in use" in said
        assert "Traceback" not in said
        assert 1 in dev.active_partitions("hgx-01")
        assert dev.comes_to("hgx-02", PAIRS) == PAIRS
    finally:
        injecting.set_partition_in_use(folder, "hgx-01", 1, None)
    dev.up()
    assert dev.comes_to("hgx-01", PAIRS) == dev.comes_to("hgx-02", PAIRS) == PAIRS
    dev.reset()
    dev.up()
    assert dev.comes_to("hgx-01", COMMITTED) == dev.comes_to("hgx-02", COMMITTED) == COMMITTED
    dev.restored = True


# Changes nothing but files on the machines, so that what fails there is all that the test waits for.
LONGER = {"source": "lab", "kubelet": {"runtime-request-timeout-seconds": 2040}}


def request_timeout(dev: Checkout, host: str) -> str:
    text = dev.on_host(host, f"sudo -n cat {KUBELET}")
    return str(yaml.safe_load(text)["runtimeRequestTimeout"])


def test_a_machine_that_cannot_be_reached_fails_alone_and_one_with_another_key_gets_no_command(
    dev: Checkout,
) -> None:
    before = request_timeout(dev, "hgx-02")
    folder = dev.lab / "hosts"
    dev.configure(kubernetes=LONGER)
    for fault, told_as in (
        (faults.RefuseConnections(), "hgx-02"),
        (faults.WrongHostKey(), "is pinned for it"),
    ):
        injecting.inject(folder, "hgx-02", fault)
        done = dev.run("up")
        said = done.stdout + done.stderr
        assert done.returncode == 1
        assert told_as in said
        assert "Traceback" not in said
        injecting.clear(folder, "hgx-02")
        assert request_timeout(dev, "hgx-01") == "2040s"
        assert request_timeout(dev, "hgx-02") == before
    dev.up()
    assert request_timeout(dev, "hgx-02") == "2040s"
    dev.reset()
    dev.up()
    assert request_timeout(dev, "hgx-01") == request_timeout(dev, "hgx-02") == before
    dev.restored = True


BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def test_a_machine_is_drained_installed_anew_and_brought_back_without_touching_the_others(
    dev: Checkout,
) -> None:
    away = {"name": "hgx-02", "maintenance": "evict"}
    dev.configure(nodes=[{"name": "hgx-01"}, away])
    assert kinds(dev.plan()) == ["create NodeMaintenance hgx-02-maintenance"]
    dev.up()
    assert dev.kubectl("get", "node", "hgx-02")["spec"]["unschedulable"] is True

    before = dev.on_host("hgx-01", BOOT_ID)
    assert dev.run("lab", "reinstall", "hgx-02").returncode == 0
    steps = kinds(dev.plan())
    assert "update VfioBinding hgx-02-vfio" in steps
    assert [step for step in steps if "hgx-01" in step] == []
    dev.up()
    assert dev.comes_to("hgx-02", COMMITTED) == COMMITTED
    assert dev.on_host("hgx-01", BOOT_ID) == before

    dev.reset()
    assert kinds(dev.plan()) == ["delete NodeMaintenance hgx-02-maintenance"]
    dev.up()
    assert "unschedulable" not in dev.kubectl("get", "node", "hgx-02")["spec"]
    dev.restored = True


def test_after_all_that_nothing_has_drifted(cluster: Checkout) -> None:
    before = state_of(cluster)
    code, report = drift(cluster)
    found = (code, report["findings"], report["not_looked_at"])
    assert found == (0, [], []), json.dumps(report, indent=1)
    assert report["up_would"] == []
    looked = report["looked_at"]
    assert looked["machines"] == looked["nodes"] == looked["firmware inventories"] == 2
    assert looked["leases"] == 16
    assert looked["tenants"] == 2
    assert looked["resources"] > 50
    assert looked["objects of Helm releases"] > 0
    assert state_of(cluster) == before


def test_drift_of_machines_tenants_and_helm_is_found_and_named(cluster: Checkout) -> None:
    # The controllers end with the first: they would put partitions back as they found them.
    wanted = by_hand_in_the_cluster(cluster) | by_hand_on_the_machines(cluster)
    before = state_of(cluster)
    code, report = drift(cluster)
    assert code == 1, json.dumps(report, indent=1)
    # A fabric manager that has started anew is told nothing yet, so that nothing is active either.
    check(report, wanted, {"fabric.partition-inactive"})
    by = {one["id"]: one["changed_by"] for one in report["findings"]}
    assert "kubectl-patch" in by["helm.object-changed"]
    assert "kubectl-patch" in by["tenant.quota-changed"]
    up = {one["id"]: one["up_puts_it_back"] for one in report["findings"]}
    assert up["cdi.missing"] is up["vfio.unbound"] is True
    assert up["helm.object-missing"] is up["host.firmware-changed"] is False
    assert state_of(cluster) == before, "a look wrote to the state"
    file = cluster.folder / "report.json"
    file.write_text(json.dumps(report))
    again = told(
        drift(cluster, "--from", str(file), "--ignore", "host.unit-*", "--ignore", "*@hgx-01")[1]
    )
    assert {one[1] for one in again} & {"hgx-01"} == set()
    assert "host.unit-failed" not in {one[0] for one in again}
