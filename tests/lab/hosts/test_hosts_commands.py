"""The other stand-ins, as a script on a host meets them."""

from __future__ import annotations

import json

import pytest

from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost


@pytest.fixture
def host(hosts: Hosts) -> SimulatedHost:
    return hosts()[0]


def test_lspci_shows_gpus_switches_and_the_function_of_the_pcie_switch(
    host: SimulatedHost,
) -> None:
    gpus = host.run("lspci -Dnn -d 10de:2330").stdout.splitlines()
    assert len(gpus) == 8
    assert gpus[0] == (
        "0000:0f:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] "
        "[10de:2330] (rev a1)"
    )
    switches = host.run("lspci -n -d 10de:22a3").stdout.splitlines()
    assert switches[0] == "05:00.0 0680: 10de:22a3 (rev a1)"
    assert len(switches) == 4
    extra = host.run("lspci -nn -d 11f8:4128").stdout
    assert extra == "03:00.1 Memory controller [0580]: PMC-Sierra Inc. Device 4128 [11f8:4128]\n"


def test_lspci_selects_by_slot_and_names_the_driver(host: SimulatedHost) -> None:
    lines = host.run("lspci -nnk -s 0000:86:00.0").stdout.splitlines()
    assert lines[0].startswith("86:00.0 3D controller [0302]")
    assert "\tKernel driver in use: vfio-pci" in lines


def test_lspci_shows_a_device_that_fell_off_the_bus(host: SimulatedHost) -> None:
    host.sudo("echo 0xff > /sys/bus/pci/devices/0000:86:00.0/revision")
    assert host.run("lspci -s 86:00.0").stdout.endswith("(rev ff)\n")


def test_a_dgx_has_one_group_per_switch_and_no_extra_function(hosts: Hosts) -> None:
    (host,) = hosts(1, "dgx-h100")
    assert host.run("lspci -d 11f8:").stdout == ""
    groups = host.run("ls /sys/kernel/iommu_groups | wc -l").stdout.strip()
    assert groups == "12"


def test_modules_and_bus_addresses_are_those_of_the_published_example(
    host: SimulatedHost,
) -> None:
    order = host.run("lspci -d 10de:2330 | cut -d: -f1").stdout.split()
    assert order == ["0f", "10", "41", "44", "86", "87", "b8", "bb"]
    from lab.hosts.hardware.board import board

    gpus = board("supermicro-hgx-h100").gpus
    index = {module: order.index(gpu.address[5:7]) for module, gpu in gpus.items()}
    assert index == {1: 4, 2: 6, 3: 5, 4: 7, 5: 0, 6: 2, 7: 1, 8: 3}


def test_sysfs_leads_from_a_gpu_to_its_vfio_group(host: SimulatedHost) -> None:
    done = host.run(
        "d=/sys/bus/pci/devices/0000:86:00.0; g=$(basename $(readlink $d/iommu_group)); "
        "cat $d/vendor $d/device $d/class $d/numa_node; basename $(readlink -f $d/driver); "
        "ls /sys/kernel/iommu_groups/$g/devices; stat -c %F /dev/vfio/$g"
    )
    assert done.stdout.splitlines()[:6] == [
        "0x10de",
        "0x2330",
        "0x030200",
        "1",
        "vfio-pci",
        "0000:86:00.0",
    ]
    assert done.returncode == 0


def test_fuser_sees_virtual_machines_only_as_root(host: SimulatedHost) -> None:
    groups = "/dev/vfio/91 /dev/vfio/92"
    assert host.run(f"sudo -n fuser {groups}").returncode == 1
    host.set_partition_in_use(3, "vm-acme")
    used = host.run(f"sudo -n fuser {groups}")
    assert (used.returncode, used.stdout.split()) == (0, ["4203", "4203"])
    assert host.run(f"fuser {groups}").returncode == 1
    assert host.run("sudo -n fuser -s /dev/vfio/112").returncode == 1
    host.set_partition_in_use(3, None)
    assert host.run(f"sudo -n fuser {groups}").returncode == 1


def test_fuser_names_a_file_that_is_not_there(host: SimulatedHost) -> None:
    done = host.run("sudo -n fuser /dev/vfio/999")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Specified filename /dev/vfio/999 does not exist.\n"


def test_nvidia_smi_fails_without_a_driver(host: SimulatedHost) -> None:
    done = host.run("nvidia-smi -q")
    assert done.returncode == 9
    assert "couldn't communicate with the NVIDIA driver" in done.stdout


def test_nvidia_ctk_lists_the_devices_of_the_cdi_files(host: SimulatedHost) -> None:
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/pgpu",
        "devices": [{"name": "1", "containerEdits": {"env": ["A=1"]}}],
    }
    host.run("sudo -n sh -c 'mkdir -p /etc/cdi; cat > /etc/cdi/a.json'", stdin=json.dumps(spec))
    host.sudo("echo '{' > /etc/cdi/broken.json")
    done = host.run("nvidia-ctk cdi list")
    assert done.stdout == "nvidia.com/pgpu=1\n"
    assert "broken.json" in done.stderr


def test_systemctl_restarts_are_counted_and_need_root(host: SimulatedHost) -> None:
    denied = host.run("systemctl restart containerd")
    assert denied.returncode == 1
    assert "Interactive authentication required" in denied.stderr
    assert host.run("sudo -n systemctl restart containerd kubelet").returncode == 0
    restarted = [e["unit"] for e in host.journal("unit") if e["action"] == "restart"]
    assert restarted == ["containerd.service", "kubelet.service"]


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        ("systemctl is-active containerd", 0, "active"),
        ("systemctl is-active nothing", 3, "inactive"),
        ("systemctl is-enabled kubelet", 0, "enabled"),
        ("systemctl is-enabled nothing", 4, "not-found"),
        ("systemctl status nothing", 4, "Unit nothing.service could not be found."),
        ("sudo -n systemctl start nothing", 5, "Unit nothing.service not found."),
        ("sudo -n systemctl stop nothing", 5, "Unit nothing.service not loaded."),
        ("systemctl frobnicate", 1, "Unknown command verb 'frobnicate'."),
        ("systemctl --frobnicate", 1, "unrecognized option '--frobnicate'"),
        ("/usr/bin/systemctl is-active libvirtd", 0, "active"),
    ],
)
def test_systemctl_answers_the_documented_exit_codes(
    host: SimulatedHost, command: str, code: int, text: str
) -> None:
    done = host.run(command)
    assert done.returncode == code
    assert text in done.stdout + done.stderr


def test_systemctl_runs_unit_files_and_notices_edits(host: SimulatedHost) -> None:
    unit = "[Service]\nExecStart=/usr/bin/sleep 600\n[Install]\nWantedBy=multi-user.target\n"
    path = "/etc/systemd/system/probe.service"
    host.run(f"sudo -n sh -c 'cat > {path}'", stdin=unit)
    assert host.run("systemctl is-enabled probe").stdout == "disabled\n"
    done = host.run("sudo -n systemctl enable --now probe")
    assert "Created symlink" in done.stderr
    assert host.run("systemctl is-active probe").returncode == 0
    host.sudo(f"echo '# edited' >> {path}")
    assert "daemon-reload" in host.run("sudo -n systemctl restart probe").stderr
    host.run("sudo -n systemctl daemon-reload")
    assert host.run("sudo -n systemctl restart probe").stderr == ""
    assert path in host.run("systemctl cat probe").stdout
    host.run("sudo -n systemctl disable --now probe")
    assert host.run("systemctl is-active probe").stdout == "inactive\n"


def test_containerd_does_not_come_up_with_a_broken_drop_in(host: SimulatedHost) -> None:
    host.sudo("echo 'this is = = not toml' > /etc/containerd/conf.d/10-kata.toml")
    done = host.run("sudo -n systemctl restart containerd")
    assert done.returncode == 1
    assert "Job for containerd.service failed" in done.stderr
    assert host.run("systemctl is-active containerd").stdout == "failed\n"
    host.sudo("rm /etc/containerd/conf.d/10-kata.toml; systemctl restart containerd")
    assert host.run("systemctl is-active containerd").returncode == 0


def test_apt_get_installs_pinned_versions_once(host: SimulatedHost) -> None:
    install = "sudo -n apt-get install -y containerd.io=2.2.4-1"
    assert "1 newly installed" in host.run(install).stdout
    assert "already the newest version" in host.run(install).stdout
    assert [e["installed"] for e in host.journal("packages")] == [{"containerd.io": "2.2.4-1"}]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("sudo -n apt-get install -y psmisc=0", "E: Version '0' for 'psmisc' was not found"),
        ("sudo -n apt-get install -y no-such", "E: Unable to locate package no-such"),
        ("apt-get install -y psmisc", "are you root?"),
        ("sudo -n apt-get frobnicate", "E: Invalid operation frobnicate"),
        ("sudo -n apt-get install --frobnicate psmisc", "is not understood"),
    ],
)
def test_apt_get_refuses_with_100(host: SimulatedHost, command: str, text: str) -> None:
    done = host.run(command)
    assert done.returncode == 100
    assert text in done.stderr


def test_apt_get_waits_for_nobody_who_holds_the_lock(host: SimulatedHost) -> None:
    host.inject(faults.PackageManagerLocked())
    done = host.run("sudo -n apt-get install -y psmisc")
    assert done.returncode == 100
    assert "It is held by process" in done.stderr


def test_virsh_moves_domains_between_their_states(host: SimulatedHost) -> None:
    assert "fabric-manager" in host.run("sudo -n virsh list --all").stdout
    assert host.run("sudo -n virsh start fabric-manager").returncode == 1
    assert host.run("sudo -n virsh destroy fabric-manager").returncode == 0
    assert host.run("sudo -n virsh domstate fabric-manager").stdout == "shut off\n\n"
    assert host.run("sudo -n virsh start nothing").stderr == (
        "error: failed to get domain 'nothing'\n"
    )
    assert host.run("virsh list").returncode == 1, "libvirt's socket is root's"


def test_virsh_refuses_devices_that_vfio_would_refuse(host: SimulatedHost) -> None:
    xml = host.run("sudo -n virsh dumpxml fabric-manager").stdout
    host.run("cat > vm.xml", stdin=xml.replace("0x05", "0x15"))
    host.run("sudo -n virsh destroy fabric-manager; sudo -n virsh define vm.xml")
    assert "0000:15:00.0 not found" in host.run("sudo -n virsh start fabric-manager").stderr
    host.run("cat > vm.xml; sudo -n virsh define vm.xml", stdin=xml)
    host.sudo("rm /sys/bus/pci/devices/0000:03:00.1/driver; mkdir /sys/bus/pci/drivers/switchtec")
    host.sudo(
        "ln -s ../../../bus/pci/drivers/switchtec /sys/devices/pci0000:03/0000:03:00.1/driver"
    )
    assert "group 14 is not viable" in host.run("sudo -n virsh start fabric-manager").stderr


def test_modules_of_vfio_load_and_nvidias_do_not(host: SimulatedHost) -> None:
    assert host.run("sudo -n modprobe iommufd").returncode == 0
    assert "iommufd" in host.run("lsmod").stdout
    refused = host.run("sudo -n modprobe nvidia")
    assert refused.returncode == 1
    assert "Module nvidia not found" in refused.stderr
    assert host.run("modprobe kvm").returncode == 1, "only root loads modules"


def test_sudo_passes_streams_exit_code_and_assignments(host: SimulatedHost) -> None:
    done = host.run("sudo -n NAME=value sh -c 'cat; echo $NAME; id -u; exit 7'", stdin="input\n")
    assert (done.returncode, done.stdout) == (7, "input\nvalue\n0\n")
    assert host.run("sudo -n -u operator id -un").stdout == "operator\n"
    assert host.run("sudo -n -u nobody id").returncode == 1
    assert host.run("sudo -n --frobnicate id").returncode == 1


def test_sudo_that_wants_a_password_fails_at_once(host: SimulatedHost) -> None:
    host.inject(faults.SudoNeedsPassword())
    done = host.run("sudo -n true")
    assert (done.returncode, done.stderr) == (1, "sudo: a password is required\n")


def test_a_host_shows_its_public_key_where_openssh_keeps_it(host: SimulatedHost) -> None:
    shown = host.run("cat /etc/ssh/ssh_host_ed25519_key.pub").stdout
    assert shown.startswith(host.endpoint.host_key)


def test_what_needs_root_fails_without_sudo(host: SimulatedHost) -> None:
    done = host.run("echo x > /etc/probe")
    assert done.returncode != 0
    assert "Permission denied" in done.stderr


def test_every_stand_in_can_be_told_from_the_real_command(host: SimulatedHost) -> None:
    assert "Stand-in" in host.run("head -2 $(command -v fmpm)").stdout
    for command in ("systemctl", "lspci", "apt-get", "nvidia-ctk", "modprobe", "sudo"):
        assert "stand-in" in host.run(f"{command} --version").stdout, command
