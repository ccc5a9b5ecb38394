"""GPUs and fabric of simulated hosts where a story in `gpus.yaml` does not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.fabric.table import TABLES, Baseboard
from gpuclusters.service_vm.model import LAB_IMAGE
from lab.hosts import faults
from lab.hosts.__main__ import main
from lab.hosts.folder import HostFolder
from lab.hosts.hardware import tenant
from lab.hosts.hardware.board import board
from lab.hosts.hardware.gpus import DEFAULT_KNOBS, Gpu
from lab.hosts.machine import Machine
from lab.hosts.model import HostsError
from lab.hosts.service_vm.fabric import Fabric, Return
from tests.fixtures.hosts import Hosts, SimulatedHost


@pytest.fixture
def host(hosts: Hosts) -> SimulatedHost:
    return hosts()[0]


def test_only_root_may_reset_a_gpu(host: SimulatedHost) -> None:
    if host.run("sudo -n id -u && id -u").stdout.split() == ["0", "0"]:
        pytest.skip("root and the operator are one user here")
    done = host.run("nvidia_gpu_tools.py --devices 0000:87:00.0 --reset-with-sbr")
    assert done.returncode == 1
    assert "PermissionError" in done.stderr


def test_the_command_line_plays_a_tenant_or_says_what_is_wrong(
    host: SimulatedHost, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(host.folder)
    assert main(["tenant", folder, host.name, "2,4", "acme", "mig=enabled", "firmware=1.2"]) == 0
    assert tenant.state(host.folder, host.name, 4).model_dump() == {
        **Gpu().model_dump(),
        "data_of": "acme",
        "reset_since_use": False,
        "knobs": {**DEFAULT_KNOBS, "mig": "enabled"},
        "firmware": "1.2",
    }
    assert main(["tenant", folder, host.name, "4", "globex"]) == 0
    assert "globex found data of acme on GPU 4" in capsys.readouterr().out
    assert main(["repair", folder, host.name, "2,4"]) == 0
    assert {*(tenant.state(host.folder, host.name, n).data_of for n in (2, 4))} == {None}
    for arguments, text in (
        (["9", "acme"], "has GPUs 1 to 8, not 9"),
        (["x", "acme"], "names no GPUs"),
        (["1", "acme", "turbo=on"], "has no knob turbo"),
        (["1"], "tenant needs a host"),
    ):
        assert main(["tenant", folder, host.name, *arguments]) == 1
        assert text in capsys.readouterr().err
    with pytest.raises(HostsError, match="there is no simulated host 'hgx-none'"):
        tenant.use(host.folder, "hgx-none", [1], "acme")


def test_an_image_knows_its_base(host: SimulatedHost) -> None:
    host.sudo("virsh list")
    image = LAB_IMAGE["path"]
    assert host.sudo(f"sha256sum {image}").stdout.split()[0] == LAB_IMAGE["sha256"]
    made = host.sudo(f"qemu-img create -q -f qcow2 -b {image} -F qcow2 /tmp/disk.qcow2 16G")
    assert made.returncode == 0, made
    info = host.sudo("qemu-img info --force-share /tmp/disk.qcow2").stdout
    assert f"backing file: {image}\n" in info
    assert "virtual size: 16 GiB (17179869184 bytes)" in info
    none = host.sudo("qemu-img create -f qcow2 -b /none -F qcow2 /tmp/x.qcow2")
    assert (none.returncode, "No such file or directory" in none.stderr) == (1, True)


def listed(host: SimulatedHost, how: str = "-l") -> dict[int, dict[str, Any]]:
    done = host.run(f"fmpm {how}")
    assert done.returncode == 0, done
    return {p["partitionId"]: p for p in json.loads(done.stdout)["partitionInfo"]}


def test_the_list_is_the_h100_table_by_module_number(host: SimulatedHost) -> None:
    document = json.loads(host.run("fmpm -l").stdout)
    assert document["numPartitions"] == document["maxNumPartitions"] == 15
    modules = {
        p["partitionId"]: [gpu["physicalId"] for gpu in p["gpuInfo"]]
        for p in document["partitionInfo"]
    }
    table = TABLES[Baseboard.HGX_H100].partitions
    assert modules == {partition.id: list(partition.modules) for partition in table}
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


def test_a_failed_gpu_and_untrained_links_show_in_the_list(host: SimulatedHost) -> None:
    host.inject(faults.PartitionUnsupported(module=8), faults.LinksDegraded(module=3, available=16))
    left = listed(host)
    assert sorted(left) == [1, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13]
    links = {
        number: [g["numNvLinksAvailable"] for g in p["gpuInfo"] if g["physicalId"] == 3]
        for number, p in left.items()
    }
    assert {n for n, of in links.items() if of == [16]} == {1, 3, 9}
    missing = listed(host, "--list-unsupported-partitions")
    assert len(missing) == 4
    assert missing[14] == {"partitionId": 14, "numGpus": 1, "gpuPhysicalIds": [8]}
    assert host.run("fmpm -a 14").returncode == 255


SETTINGS = {
    "FABRIC_MODE": "1",
    "FABRIC_MODE_RESTART": "1",
    "FM_CMD_BIND_INTERFACE": "192.168.250.2",
}


def test_a_fabric_is_there_while_the_vm_with_the_switches_runs(tmp_path: Path) -> None:
    """Its state machine alone, without a server."""
    machine = Machine(HostFolder(tmp_path / "hgx-01"), board("supermicro-hgx-h100"))
    machine.folder.root.mkdir(parents=True)
    fabric = Fabric(machine, faults.Faults(()))
    fabric.power_on("595.58.03", SETTINGS)
    # Where it runs counts, not what the host says; it answers where it was told to.
    assert fabric.connect("192.168.250.2", running=False) is Return.SUCCESS
    assert fabric.connect("127.0.0.1", running=True) is Return.TIMEOUT
    assert fabric.ready() is fabric.set_activated([7]) is Return.NOT_CONFIGURED
    machine.state["fabric"]["ready_at"] = 0
    assert fabric.ready() is Return.SUCCESS
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
