"""`fmpm` on a simulated host keeps the contract of the real one: outputs, exit codes, restarts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import faults
from lab.hosts.folder import HostFolder
from lab.hosts.hardware.board import board
from lab.hosts.machine import Machine
from lab.hosts.service_vm.fabric import CONFIGURATION, INITIALISING_SECONDS, Fabric, Return
from tests.fixtures.hosts import Hosts, SimulatedHost


@pytest.fixture
def host(hosts: Hosts) -> SimulatedHost:
    return hosts()[0]


def listed(host: SimulatedHost) -> dict[int, dict[str, Any]]:
    done = host.run("fmpm -l")
    assert done.returncode == 0, done
    return {p["partitionId"]: p for p in json.loads(done.stdout)["partitionInfo"]}


def active(host: SimulatedHost) -> list[int]:
    return [number for number, p in listed(host).items() if p["isActive"] == 1]


def test_the_list_is_the_h100_table_by_module_number(host: SimulatedHost) -> None:
    document = json.loads(host.run("fmpm -l").stdout)
    assert document["numPartitions"] == document["maxNumPartitions"] == 15
    modules = {
        p["partitionId"]: [gpu["physicalId"] for gpu in p["gpuInfo"]]
        for p in document["partitionInfo"]
    }
    assert modules == {
        0: [1, 2, 3, 4, 5, 6, 7, 8],
        1: [1, 2, 3, 4],
        2: [5, 6, 7, 8],
        3: [1, 3],
        4: [2, 4],
        5: [5, 7],
        6: [6, 8],
        **{6 + module: [module] for module in range(1, 9)},
    }


def test_each_gpu_of_the_list_has_the_documented_fields(host: SimulatedHost) -> None:
    partitions = listed(host)
    assert set(partitions[0]) == {"partitionId", "isActive", "numGpus", "gpuInfo"}
    assert partitions[0]["numGpus"] == 8
    assert partitions[0]["gpuInfo"][0] == {
        "physicalId": 1,
        "uuid": "",
        "pciBusId": "00000000:00:00.0",
        "numNvLinksAvailable": 18,
        "maxNumNvLinks": 18,
        "nvlinkLineRateMBps": 26562,
    }
    assert partitions[7]["gpuInfo"][0]["maxNumNvLinks"] == 0


def test_disjoint_partitions_are_activated_and_dropped(host: SimulatedHost) -> None:
    for number in (1, 5, 6):
        done = host.run(f"fmpm -a {number}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert active(host) == [1, 5, 6]
    assert host.run("fmpm -d 5").returncode == 0
    assert active(host) == [1, 6]


def test_after_a_resilient_restart_nothing_changes_until_the_list_is_set(
    host: SimulatedHost,
) -> None:
    host.run("fmpm -a 7; fmpm -a 8")
    assert host.run("sudo -n systemctl restart nvidia-fabricmanager").returncode == 0
    wait_until_initialised(host)
    assert active(host) == []
    assert host.run("fmpm -a 9").returncode == 248
    assert host.run("fmpm -d 7").returncode == 248
    assert host.run("fmpm --set-activated-list 7,8").returncode == 0
    assert active(host) == [7, 8]
    assert host.run("fmpm -a 9").returncode == 0
    assert host.journal("harm") == []


def test_a_starting_fabric_manager_answers_nothing_until_it_is_initialised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("lab.hosts.service_vm.fabric.time.time", lambda: now)
    machine = Machine(HostFolder(tmp_path), board("supermicro-hgx-h100"))
    configuration = machine.path(CONFIGURATION)
    configuration.parent.mkdir(parents=True)
    configuration.write_text("FABRIC_MODE=1\nFABRIC_MODE_RESTART=1\n")
    fabric = Fabric(machine, faults.Faults())
    fabric.started()
    assert fabric.ready() is fabric.set_activated([7]) is Return.NOT_CONFIGURED
    now += INITIALISING_SECONDS
    assert fabric.ready() is Return.SUCCESS
    assert fabric.activate(7) is Return.NOT_CONFIGURED
    assert fabric.set_activated([7]) is Return.SUCCESS
    assert fabric.deactivate(7) is Return.SUCCESS


def test_an_empty_list_ends_the_wait_as_well(host: SimulatedHost) -> None:
    host.run("sudo -n systemctl restart nvidia-fabricmanager")
    wait_until_initialised(host)
    assert host.run("fmpm --set-activated-list ''").returncode == 0
    assert host.run("fmpm -a 7").returncode == 0


def test_without_resilience_a_restart_drops_what_virtual_machines_use(
    host: SimulatedHost,
) -> None:
    host.run("fmpm -a 7")
    host.set_partition_in_use(7, "vm-acme")
    host.sudo("sed -i s/RESTART=1/RESTART=0/ /usr/share/nvidia/nvswitch/fabricmanager.cfg")
    host.run("sudo -n systemctl restart nvidia-fabricmanager")
    assert [entry["partition"] for entry in host.journal("harm")] == [7]
    wait_until_initialised(host)
    assert host.run("fmpm -a 7").returncode == 0


def test_a_repeated_number_in_the_list_hangs_like_the_real_one(host: SimulatedHost) -> None:
    with pytest.raises(TimeoutError):
        host.run("fmpm --set-activated-list 7,7", timeout=0.5)


def test_dropping_a_partition_under_a_virtual_machine_is_on_record(host: SimulatedHost) -> None:
    host.run("fmpm -a 3")
    host.set_partition_in_use(3, "vm-acme")
    assert host.run("fmpm -d 3").returncode == 0, "the fabric manager knows nothing of machines"
    (entry,) = host.journal("harm")
    assert entry["what"] == "partition 3 dropped under vm-acme"


def test_a_failed_gpu_takes_its_partitions_off_the_list(host: SimulatedHost) -> None:
    host.inject(faults.PartitionUnsupported(module=8))
    assert sorted(listed(host)) == [1, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13]
    missing = json.loads(host.run("fmpm --list-unsupported-partitions").stdout)
    assert missing["numPartitions"] == 4
    assert {"partitionId": 14, "numGpus": 1, "gpuPhysicalIds": [8]} in missing["partitionInfo"]
    assert host.run("fmpm -a 14").returncode == 255


def test_the_fabric_manager_is_out_of_reach_while_its_machine_is_off(host: SimulatedHost) -> None:
    host.run("sudo -n virsh shutdown fabric-manager")
    assert host.run("fmpm -l").returncode == 247
    host.run("sudo -n virsh start fabric-manager")
    wait_until_initialised(host)
    assert host.run("fmpm -a 7").returncode == 248


def wait_until_initialised(host: SimulatedHost) -> None:
    deadline = time.monotonic() + 120
    while host.run("fmpm -l").returncode == 248:
        assert time.monotonic() < deadline
        time.sleep(INITIALISING_SECONDS / 5)


def alone(tmp_path: Path, *injected: Any) -> tuple[Fabric, Machine]:
    """A fabric without a server: its state machine alone."""
    machine = Machine(HostFolder(tmp_path / "hgx-01"), board("supermicro-hgx-h100"))
    machine.folder.root.mkdir(parents=True)
    return Fabric(machine, faults.Faults(injected)), machine


SETTINGS = {
    "FABRIC_MODE": "1",
    "FABRIC_MODE_RESTART": "1",
    "FM_CMD_BIND_INTERFACE": "192.168.250.2",
}


def test_a_fabric_is_there_while_the_vm_with_the_switches_runs(tmp_path: Path) -> None:
    fabric, machine = alone(tmp_path)
    fabric.power_on("595.58.03", SETTINGS)
    # Where it runs counts, not what the host says; it answers where it was told to.
    assert fabric.connect("192.168.250.2", running=False) is Return.SUCCESS
    assert fabric.connect("127.0.0.1", running=True) is Return.TIMEOUT
    machine.state["fabric"]["ready_at"] = 0
    assert fabric.activate(7) is Return.NOT_CONFIGURED  # it waits for the list after a boot
    assert fabric.set_activated([]) is Return.SUCCESS
    assert fabric.activate(7) is Return.SUCCESS
    fabric.power_off()
    assert fabric.connect("192.168.250.2", running=True) is Return.CONNECTION_NOT_VALID
    fabric.power_on("595.58.04", SETTINGS)
    assert fabric.connect("192.168.250.2", running=True) is Return.VERSION_MISMATCH
    fabric.power_on("595.58.03", {**SETTINGS, "FABRIC_MODE": "0"})
    machine.state["fabric"]["ready_at"] = 0
    assert fabric.ready() is Return.NOT_SUPPORTED


def test_codes_can_be_injected_by_operation_partition_and_number_of_times(tmp_path: Path) -> None:
    fabric, _ = alone(
        tmp_path,
        faults.FabricAnswers(code=-10, operation="activate", partition=4, times=1),
        faults.FabricAnswers(code=-5, operation="list"),
    )
    assert fabric.injected("activate", 3) is Return.SUCCESS
    assert fabric.injected("activate", 4) == -10
    assert fabric.injected("activate", 4) is Return.SUCCESS
    assert [fabric.injected("list", None) for _ in range(2)] == [-5] * 2


def test_links_that_did_not_train_are_fewer_in_every_partition_of_the_gpu(
    host: SimulatedHost,
) -> None:
    host.inject(faults.LinksDegraded(module=3, available=16))
    links = {
        number: [g["numNvLinksAvailable"] for g in p["gpuInfo"] if g["physicalId"] == 3]
        for number, p in listed(host).items()
    }
    assert {n for n, of in links.items() if of == [16]} == {0, 1, 3, 9}
