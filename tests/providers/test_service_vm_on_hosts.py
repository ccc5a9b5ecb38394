"""The service VM of a host, through the SDK's provider process and a simulated libvirt over real SSH."""

import json
from functools import partial

import pytest

from gpuclusters.service_vm.model import IMAGE_FOLDER, LAB_IMAGE, STATE_FOLDER
from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import INPUTS, Resource, inputs_of
from tests.providers.test_prepared_hosts import boot_inputs

SWITCHES = INPUTS["ServiceVm"]["switches"]
SEED = f"{IMAGE_FOLDER}/fabric-manager-seed.iso"


wanted = partial(inputs_of, "ServiceVm", image=dict(LAB_IMAGE))


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


@pytest.fixture
def vm(machine: SimulatedHost, start_provider: StartProvider) -> Resource:
    """Not made yet, on a machine that has none."""
    return start_provider(without_vm(machine)).of("ServiceVm", wanted(machine))


def acts(host: SimulatedHost, kind: str = "domain") -> list[str]:
    return [entry["action"] for entry in host.journal(kind)]


def test_a_vm_is_made_serves_changes_and_goes(machine: SimulatedHost, vm: Resource) -> None:
    host = machine
    assert host.run("fmpm -l --hostname 192.168.250.2").returncode == 247
    made = vm.create()
    assert vm.id == f"{host.name}/fabric-manager"
    assert (made["address"], made["state"]) == ("192.168.250.2", "ready")
    assert (made["fabric_manager_version"], made["drift"]) == ("595.58.03", [])
    assert made["ssh_host_key"].startswith("ssh-ed25519 AAAA")
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
    for told in (json.dumps(made), json.dumps(host.commands()), seed["user-data"]):
        assert private not in told

    # Nothing to do: neither a difference nor, if it is done all the same, an act.
    assert not vm.differs()
    host.forget()
    assert vm.update() == made
    assert acts(host) == acts(host, "network") == []

    difference = vm.diff(memory_mib=8192)
    assert (difference.changes, difference.replaces) == (True, [])
    larger = vm.update(memory_mib=8192)
    assert acts(host) == ["shutdown", "define", "autostart", "start"]
    assert larger["run"] != made["run"]
    assert "8388608" in host.sudo("virsh dumpxml fabric-manager").stdout

    vm.delete()
    assert host.sudo("virsh list --all --name").stdout.strip() == ""
    assert "fabric-manager" not in host.sudo("virsh net-list --all").stdout
    left = host.sudo(f"ls {IMAGE_FOLDER}; ls {STATE_FOLDER}; ls /etc/systemd/system").stdout
    assert "fabric-manager" not in left
    assert "service-vm" not in left
    assert host.path(LAB_IMAGE["path"]).exists(), "the image is the operator's"
    vm.delete()


def test_partitions_are_restored_after_a_restart_and_the_vm_stays_while_they_are_active(
    machine: SimulatedHost, vm: Resource
) -> None:
    vm.create()
    there = {"partitions": [1, 2], "fabric_manager_host": "192.168.250.2"}
    cut = vm.process.on("FabricPartitions", machine, **there)
    cut.create()
    vm.refused("delete", "cannot be removed while partitions are active: 1, 2")
    machine.set_partition_in_use(1, "vm-acme")
    user = "GPU 1 (0000:86:00.0) by process"
    vm.refused("update", 'vcpu is "2" instead of "4"', user, vcpus=4)
    vm.refused("delete", "GPU 1")
    assert acts(machine)[-1] == "start", "nothing was done"

    machine.set_partition_in_use(1, None)
    vm.update(vcpus=4)
    assert machine.active_partitions() == []
    cut.update()
    assert machine.active_partitions() == [1, 2]
    assert machine.journal("harm") == []


def test_what_was_changed_by_hand_shows_after_a_refresh_and_is_put_back(
    machine: SimulatedHost, vm: Resource
) -> None:
    vm.create()
    machine.sudo(
        "virsh autostart --disable fabric-manager; virsh net-destroy fabric-manager; "
        f"rm /etc/systemd/system/gpu-clusters-service-vm.service; echo x >> {SEED}; "
        "virsh dumpxml --inactive fabric-manager | "
        'sed "s/static.>2</static\\">1</; s/bus=.0x08. slot/bus=\\"0x86\\" slot/" > /tmp/vm.xml; '
        "virsh define /tmp/vm.xml; virsh destroy fabric-manager"
    )
    assert vm.refresh().outputs["state"] == "stopped"
    said = vm.drift()
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
    assert vm.differs()
    put_right = vm.update()
    assert (put_right["drift"], put_right["state"]) == ([], "ready")


def test_a_prepared_machine_has_exactly_this_vm_and_one_of_somebody_else_is_taken_only_when_told(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    vm = start_provider(host).of("ServiceVm", wanted(host))
    host.sudo("virsh list")
    host.forget()
    assert vm.create()["state"] == "ready"
    assert acts(host) == [], "its domain is as ours"

    host.sudo(
        "virsh dumpxml --inactive fabric-manager | grep -v uuid | "
        "grep -v gpu-clusters:service-vm > /tmp/vm.xml; "
        "virsh destroy fabric-manager; virsh undefine --nvram fabric-manager; "
        "virsh define /tmp/vm.xml; virsh start fabric-manager"
    )
    vm.refused("create", "is not ours", "adopt: true")
    host.forget()
    differs = "what is there differs from what is declared: domain: vcpu is"
    vm.refused("create", differs, adopt=True, vcpus=9)
    assert acts(host) == []
    assert vm.create(adopt=True)["state"] == "ready"
    assert "service-vm" in host.sudo("virsh dumpxml fabric-manager").stdout


def test_what_goes_wrong_is_told_with_its_remedy_and_mends_when_it_is_over(
    machine: SimulatedHost, vm: Resource
) -> None:
    for fault, words in (
        (faults.DiskFull(path=IMAGE_FOLDER), "free some space"),
        (faults.VmDoesNotBoot(), "its console says nothing"),
        (faults.FabricManagerStaysResident(), "its service is active, yet the API"),
    ):
        machine.inject(fault)
        seconds = 1 if "console" in words else 3
        vm.refused("create", words, machine.name, boot_timeout_seconds=seconds)
        machine.clear_faults()
        if "API" in words or "console" in words:
            machine.sudo("virsh destroy fabric-manager")
    machine.sudo("virsh undefine --nvram fabric-manager")
    three = ("its service is failed", "all NVSwitches have to be there")
    vm.refused("create", *three, switches=SWITCHES[:3])
    machine.sudo("virsh destroy fabric-manager")
    assert vm.create()["state"] == "ready"


def test_a_bare_machine_serves_once_it_is_prepared_and_again_after_its_reboot(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(condition="bare")
    provider = start_provider(host)
    vm = provider.of("ServiceVm", wanted(host))
    vm.refused("create", "libvirt cannot be asked (sh: 1: virsh: not found)")
    packages = "libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils genisoimage psmisc"
    assert host.sudo(f"apt-get install -y {packages}").returncode == 0
    provider.create("HostBoot", boot_inputs(host, huge_pages_1g={}))
    functions = [
        *({"address": a, "pci_id": "10de:22a3", "pci_class": "0680"} for a in SWITCHES),
        {"address": "0000:03:00.1", "pci_id": "11f8:4128", "pci_class": ""},
    ]
    binding = provider.on("VfioBinding", host, functions=functions[:-1])
    binding.create()
    vm.refused("create", "a function is not on vfio-pci", "; bind the function to vfio-pci")
    link = "/sys/devices/pci0000:03/0000:03:00.1/driver"
    host.sudo(
        f"mkdir -p /sys/bus/pci/drivers/switchtec; ln -s ../../../bus/pci/drivers/switchtec {link}"
    )
    viable = "bind every function of that IOMMU group to vfio-pci"
    vm.refused("create", "group 14 is not viable", viable)
    host.sudo(f"rm {link}")
    binding.update(functions=functions)
    made = vm.create()
    assert (made["state"], made["drift"]) == ("ready", [])

    host.reboot()
    # The machine lets in before its service VM has booted.
    eventually(lambda: vm.look().outputs["state"] == "ready")
    live = vm.refresh().outputs
    assert (live["state"], live["drift"]) == ("ready", [])
    assert host.run("systemctl is-active gpu-clusters-service-vm").stdout == "active\n"
    assert live["run"] != made["run"], "partitions have to be told anew"
