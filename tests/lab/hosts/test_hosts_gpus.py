"""GPUs and fabric of simulated hosts where a story in `gpus.yaml` does not do."""

from __future__ import annotations

from pathlib import Path

import pytest

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
