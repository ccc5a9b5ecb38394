"""GPUs of simulated hosts whose tenants are played by hand; what their programs answer is in `gpus.yaml`."""

from __future__ import annotations

import pytest

from lab.hosts.__main__ import main
from lab.hosts.hardware import tenant
from lab.hosts.hardware.gpus import DEFAULT_KNOBS, Gpu
from lab.hosts.model import HostsError
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
    from gpuclusters.service_vm.model import LAB_IMAGE

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
