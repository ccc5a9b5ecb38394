"""The service VM of a host, through the SDK's provider process and a simulated libvirt over real SSH."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuclusters.boot import model as host_boot
from gpuclusters.boot.resource import HostBootProvider
from gpuclusters.fabric.resource import FabricPartitionsProvider
from gpuclusters.service_vm.model import IMAGE_FOLDER, LAB_IMAGE, STATE_FOLDER
from gpuclusters.service_vm.resource import ServiceVmProvider
from gpuclusters.vfio.resource import VfioBindingProvider
from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Made, ProviderProcess, StepFailed
from tests.providers.restarts import restart

SWITCHES = ["0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0"]
GPUS = {
    str(module): f"0000:{bus}:00.0"
    for module, bus in enumerate(("86", "b8", "87", "bb", "0f", "41", "10", "44"), start=1)
}
SEED = f"{IMAGE_FOLDER}/fabric-manager-seed.iso"


def wanted(host: SimulatedHost, **changes: Any) -> dict[str, Any]:
    return {
        "connection": host.connection,
        "name": "fabric-manager",
        "switches": SWITCHES,
        "extra_functions": ["0000:03:00.1"],
        "gpus": GPUS,
        "image": dict(LAB_IMAGE),
        "fabric_manager": {"version": "595.58.03"},
        "vcpus": 2,
        "memory_mib": 4096,
        "boot_timeout_seconds": 3,
        "shutdown_timeout_seconds": 2,
        "adopt": False,
    } | changes


def without_vm(host: SimulatedHost) -> SimulatedHost:
    """As a machine is before its service VM was made."""
    done = host.sudo(
        "virsh destroy fabric-manager; virsh undefine --nvram fabric-manager; "
        "virsh net-destroy fabric-manager; virsh net-undefine fabric-manager; "
        f"rm -rf {IMAGE_FOLDER} {STATE_FOLDER}; systemctl stop nvidia-fabricmanager"
    )
    assert done.returncode == 0, done
    host.forget()
    return host


@pytest.fixture(scope="module")
def machine(hosts_pool: Any) -> SimulatedHost:
    """One machine for all tests here that begin without a VM."""
    made: SimulatedHost = hosts_pool.add(1, "supermicro-hgx-h100")[0]
    return made


@pytest.fixture
def bare(machine: SimulatedHost) -> Iterator[SimulatedHost]:
    yield without_vm(machine)
    machine.clear_faults()


def acts(host: SimulatedHost, kind: str = "domain") -> list[str]:
    return [entry["action"] for entry in host.journal(kind)]


def fails(act: Callable[[], object]) -> str:
    with pytest.raises(StepFailed) as failed:
        act()
    return str(failed.value)


def test_a_vm_is_made_serves_changes_and_goes(
    bare: SimulatedHost, start_provider: StartProvider
) -> None:
    host, provider = bare, start_provider(bare)
    assert host.run("fmpm -l --hostname 192.168.250.2").returncode == 247
    made = provider.create(ServiceVmProvider, wanted(host))
    assert made.id == f"{host.name}/fabric-manager"
    assert (made.outputs["address"], made.outputs["state"]) == ("192.168.250.2", "ready")
    assert made.outputs["fabric_manager_version"] == "595.58.03"
    assert made.outputs["drift"] == []
    assert made.outputs["ssh_host_key"].startswith("ssh-ed25519 AAAA")
    assert host.run("fmpm -l --hostname 192.168.250.2").returncode == 0
    # Leases can begin: the fabric manager has been told that nothing is active.
    for change in ("-a 7", "-d 7"):
        assert host.run(f"fmpm {change} --hostname 192.168.250.2").returncode == 0
    xml = host.sudo("virsh dumpxml fabric-manager").stdout
    for bus in ("05", "06", "07", "08", "03"):
        assert f'bus="0x{bus}"' in xml
    assert host.sudo("virsh dominfo fabric-manager").stdout.count("Autostart:      enable") == 1
    assert host.run("systemctl is-enabled gpu-clusters-service-vm").stdout == "enabled\n"
    assert host.sudo(f"stat -c %a {STATE_FOLDER} {SEED}").stdout.split() == ["700", "600"]

    private = host.path(f"{STATE_FOLDER}/fabric-manager.host_key").read_text().splitlines()[1]
    seed = json.loads(host.path(SEED).read_text())
    assert private in seed["vendor-data"]
    for told in (json.dumps(made.outputs), json.dumps(host.commands()), seed["user-data"]):
        assert private not in told

    # Nothing to do: neither a difference nor, if it is done all the same, an act.
    assert not provider.diff(ServiceVmProvider, made.outputs, wanted(host)).changes
    host.forget()
    again = provider.update(ServiceVmProvider, made, wanted(host))
    assert again.outputs == made.outputs
    assert acts(host) == acts(host, "network") == []

    larger = wanted(host, memory_mib=8192)
    difference = provider.diff(ServiceVmProvider, made.outputs, larger)
    assert (difference.changes, difference.replaces) == (True, [])
    made = provider.update(ServiceVmProvider, made, larger)
    assert acts(host) == ["shutdown", "define", "autostart", "start"]
    assert made.outputs["run"] != again.outputs["run"]
    assert "8388608" in host.sudo("virsh dumpxml fabric-manager").stdout

    provider.delete(ServiceVmProvider, made)
    assert host.sudo("virsh list --all --name").stdout.strip() == ""
    assert "fabric-manager" not in host.sudo("virsh net-list --all").stdout
    left = host.sudo(f"ls {IMAGE_FOLDER}; ls {STATE_FOLDER}; ls /etc/systemd/system").stdout
    assert "fabric-manager" not in left
    assert "service-vm" not in left
    assert host.path(LAB_IMAGE["path"]).exists(), "the image is the operator's"
    provider.delete(ServiceVmProvider, made)


def test_partitions_are_restored_after_a_restart_and_the_vm_stays_while_they_are_active(
    bare: SimulatedHost, start_provider: StartProvider
) -> None:
    host, provider = bare, start_provider(bare)
    made = provider.create(ServiceVmProvider, wanted(host))
    partitions = {
        "connection": host.connection,
        "board": "board-0",
        "baseboard": "hgx-h100",
        "partitions": [1, 2],
        "gpus": GPUS,
        "fabric_manager_host": "192.168.250.2",
    }
    cut = provider.create(FabricPartitionsProvider, partitions)
    text = fails(lambda: provider.delete(ServiceVmProvider, made))
    assert "cannot be removed while partitions are active: 1, 2" in text
    assert acts(host)[-1] == "start", "nothing was done"

    host.set_partition_in_use(1, "vm-acme")
    larger = wanted(host, vcpus=4)
    text = fails(lambda: provider.update(ServiceVmProvider, made, larger))
    assert 'vcpu is "2" instead of "4"' in text
    assert "GPU 1 (0000:86:00.0) by process" in text
    assert acts(host)[-1] == "start", "nothing was done"
    assert "GPU 1" in fails(lambda: provider.delete(ServiceVmProvider, made))

    host.set_partition_in_use(1, None)
    made = provider.update(ServiceVmProvider, made, larger)
    assert host.active_partitions() == []
    provider.update(FabricPartitionsProvider, cut, partitions)
    assert host.active_partitions() == [1, 2]
    assert host.journal("harm") == []


def test_what_was_changed_by_hand_shows_after_a_refresh_and_is_put_back(
    bare: SimulatedHost, start_provider: StartProvider
) -> None:
    host, provider = bare, start_provider(bare)
    made = provider.create(ServiceVmProvider, wanted(host))
    host.sudo(
        "virsh autostart --disable fabric-manager; virsh net-destroy fabric-manager; "
        f"rm /etc/systemd/system/gpu-clusters-service-vm.service; echo x >> {SEED}; "
        "virsh dumpxml --inactive fabric-manager | "
        'sed "s/static.>2</static\\">1</; s/bus=.0x08. slot/bus=\\"0x86\\" slot/" > /tmp/vm.xml; '
        "virsh define /tmp/vm.xml; virsh destroy fabric-manager"
    )
    live = provider.read(ServiceVmProvider, made)
    said = "\n".join(one["problem"] for one in live.outputs["drift"])
    for words in (
        "is not started with libvirt",
        "network: it is not active",
        "the file /etc/systemd/system/gpu-clusters-service-vm.service is missing",
        "the seed is missing or another",
        'domain: vcpu is "1" instead of "2"',
        "PCI function 0000:86:00.0 is there and should not be",
        "PCI function 0000:08:00.0 is missing",
        "the VM does not run",
    ):
        assert words in said
    assert live.outputs["state"] == "stopped"
    assert provider.diff(ServiceVmProvider, live.outputs, wanted(host)).changes
    put_right = provider.update(ServiceVmProvider, Made(made.id, live.outputs), wanted(host))
    assert (put_right.outputs["drift"], put_right.outputs["state"]) == ([], "ready")


def test_a_prepared_machine_has_exactly_this_vm(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    host.sudo("virsh list")
    host.forget()
    made = start_provider(host).create(ServiceVmProvider, wanted(host))
    assert made.outputs["state"] == "ready"
    assert acts(host) == [], "its domain is as ours"


def test_a_domain_of_somebody_else_is_taken_over_only_when_told(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    host.sudo(
        "virsh dumpxml --inactive fabric-manager | grep -v uuid | "
        "grep -v gpu-clusters:service-vm > /tmp/vm.xml; "
        "virsh destroy fabric-manager; virsh undefine --nvram fabric-manager; "
        "virsh define /tmp/vm.xml; virsh start fabric-manager"
    )
    text = fails(lambda: provider.create(ServiceVmProvider, wanted(host)))
    assert "is not ours" in text
    assert "adopt: true" in text
    host.forget()
    text = fails(lambda: provider.create(ServiceVmProvider, wanted(host, adopt=True, vcpus=9)))
    assert "what is there differs from what is declared: domain: vcpu is" in text
    assert acts(host) == []
    made = provider.create(ServiceVmProvider, wanted(host, adopt=True))
    assert made.outputs["state"] == "ready"
    assert "service-vm" in host.sudo("virsh dumpxml fabric-manager").stdout


def test_what_goes_wrong_is_told_with_its_remedy_and_mends_when_it_is_over(
    bare: SimulatedHost, start_provider: StartProvider
) -> None:
    host, provider = bare, start_provider(bare)
    for fault, words in (
        (faults.LibvirtDown(), "libvirt cannot be asked"),
        (faults.DiskFull(path=IMAGE_FOLDER), "free some space"),
        (faults.VmDoesNotBoot(), "its console says nothing"),
        (faults.FabricManagerStaysResident(), "its service is active, yet the API"),
    ):
        host.inject(fault)
        text = fails(lambda: provider.create(ServiceVmProvider, wanted(host)))
        assert words in text
        assert host.name in text
        host.clear_faults()
        if "API" in words or "console" in words:
            host.sudo("virsh destroy fabric-manager")
    assert provider.create(ServiceVmProvider, wanted(host)).outputs["state"] == "ready"


def test_a_bare_machine_serves_once_it_is_prepared_and_again_after_its_reboot(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(condition="bare")
    provider = start_provider(host)
    assert "libvirt cannot be asked (sh: 1: virsh: not found)" in fails(
        lambda: provider.create(ServiceVmProvider, wanted(host))
    )
    packages = "libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils genisoimage psmisc"
    assert host.sudo(f"apt-get install -y {packages}").returncode == 0
    arguments = host_boot.kernel_arguments(cpu=host_boot.Cpu.INTEL, huge_pages_1g_by_numa_node={})
    boot = {
        "connection": host.connection,
        "kernel_arguments": list(arguments),
        "files": dict(host_boot.host_files()),
        "huge_pages_1g": {},
        "reboot": "allow",
        "reboot_timeout_seconds": 60,
    }
    provider.create(HostBootProvider, boot)
    assert "not" in fails(lambda: provider.create(ServiceVmProvider, wanted(host)))
    functions = [
        *({"address": a, "pci_id": "10de:22a3", "pci_class": "0680"} for a in SWITCHES),
        {"address": "0000:03:00.1", "pci_id": "11f8:4128", "pci_class": ""},
    ]
    provider.create(VfioBindingProvider, {"connection": host.connection, "functions": functions})
    made = provider.create(ServiceVmProvider, wanted(host))
    assert (made.outputs["state"], made.outputs["drift"]) == ("ready", [])

    restart(host)
    # The machine lets in before its service VM has booted.
    eventually(lambda: provider.read(ServiceVmProvider, made).outputs["state"] == "ready")
    live = provider.read(ServiceVmProvider, made)
    assert (live.outputs["state"], live.outputs["drift"]) == ("ready", [])
    assert host.run("systemctl is-active gpu-clusters-service-vm").stdout == "active\n"
    assert live.outputs["run"] != made.outputs["run"], "partitions have to be told anew"


def test_the_vm_needs_every_switch_and_every_function_on_vfio(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(without_vm(host))
    three = wanted(host, switches=SWITCHES[:3])
    text = fails(lambda: provider.create(ServiceVmProvider, three))
    assert "its service is failed" in text
    assert "all NVSwitches have to be there" in text
    host.sudo("virsh destroy fabric-manager; virsh undefine --nvram fabric-manager")
    host.sudo(
        "rm /sys/bus/pci/devices/0000:03:00.1/driver; mkdir -p /sys/bus/pci/drivers/switchtec; "
        "ln -s ../../../bus/pci/drivers/switchtec /sys/devices/pci0000:03/0000:03:00.1/driver"
    )
    text = fails(lambda: provider.create(ServiceVmProvider, wanted(host)))
    assert "group 14 is not viable" in text
    assert "bind every function of that IOMMU group to vfio-pci" in text
