"""What prepares a host: boot, functions on vfio-pci, units; real scripts on simulated machines."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gpuclusters.boot import model as host_boot
from gpuclusters.boot.host import reboot
from gpuclusters.boot.resource import HostBootProvider
from gpuclusters.core import scripts
from gpuclusters.core.errors import AdapterError, UnreachableError
from gpuclusters.host.ssh import Completed, SshHost
from gpuclusters.vfio import decide as vfio
from gpuclusters.vfio.resource import VfioBindingProvider
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import ProviderProcess, StepFailed
from tests.providers.restarts import boots, restart

SCRIPT = scripts.read("vfio/vfio_users.sh") + scripts.read("vfio/vfio_bind.sh")
"""What the unit runs at every boot."""
GPU = "0000:86:00.0"
FUNCTIONS = [
    {"address": GPU, "pci_id": "10de:2330", "pci_class": "0302"},
    {"address": "0000:05:00.0", "pci_id": "10de:22a3", "pci_class": "0680"},
    {"address": "0000:03:00.1", "pci_id": "11f8:4128", "pci_class": ""},
]
PAGES = {0: 4, 1: 4}


def boot_inputs(host: SimulatedHost, **changes: Any) -> dict[str, Any]:
    arguments = host_boot.kernel_arguments(
        cpu=host_boot.Cpu.INTEL, huge_pages_1g_by_numa_node=PAGES, extra=["pci=realloc"]
    )
    return {
        "connection": host.connection,
        "kernel_arguments": list(arguments),
        "files": dict(host_boot.host_files()),
        "huge_pages_1g": {str(node): count for node, count in PAGES.items()},
        "reboot": "allow",
        "reboot_timeout_seconds": 60,
    } | changes


def vfio_inputs(host: SimulatedHost, **changes: Any) -> dict[str, Any]:
    return {"connection": host.connection, "functions": FUNCTIONS} | changes


def driver(host: SimulatedHost, address: str) -> str | None:
    link = host.path(f"/sys/bus/pci/devices/{address}") / "driver"
    return link.readlink().name if link.is_symlink() else None


def running(host: SimulatedHost) -> str:
    return host.path("/usr/local/lib/lab-host/proc/cmdline").read_text()


def bare_host(pool: Any, **kind: Any) -> SimulatedHost:
    (host,) = pool.add(1, "supermicro-hgx-h100", condition="bare", **kind)
    assert isinstance(host, SimulatedHost)
    host.run("sudo -n apt-get install -y psmisc || sudo -n dnf install -y psmisc")
    return host


@pytest.fixture(scope="module")
def bare(hosts_pool: Any) -> SimulatedHost:
    """One machine that the tests of this module prepare, step by step."""
    return bare_host(hosts_pool)


@pytest.fixture
def provider(bare: SimulatedHost, start_provider: StartProvider) -> ProviderProcess:
    return start_provider(bare)


def test_nothing_is_written_while_others_contradict_or_own_a_file(
    bare: SimulatedHost, provider: ProviderProcess
) -> None:
    mine = bare.path("/etc/modprobe.d/gpu-clusters.conf")
    mine.write_text("blacklist mine\n")
    other = bare.path("/etc/default/grub.d/50-other.cfg")
    other.write_text('GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=off"\n')
    with pytest.raises(StepFailed) as failed:
        provider.create(HostBootProvider, boot_inputs(bare))
    assert "intel_iommu=off, which contradicts intel_iommu=on" in str(failed.value)
    assert f"{host_boot.MODPROBE_FILE} is not ours" in str(failed.value)
    assert not bare.path(host_boot.GRUB_FILE).exists()
    other.unlink()
    mine.unlink()


def test_a_refused_reboot_says_which_command_and_changes_the_next_boot_only(
    bare: SimulatedHost, provider: ProviderProcess
) -> None:
    with pytest.raises(StepFailed) as failed:
        provider.create(HostBootProvider, boot_inputs(bare, reboot="refuse"))
    assert "the running kernel lacks intel_iommu=on" in str(failed.value)
    assert "sudo systemctl reboot" in str(failed.value)
    assert "iommu" not in running(bare)
    assert "iommu=pt" in bare.path("/boot/grub/grub.cfg").read_text()


def test_an_initramfs_that_cannot_be_built_is_built_by_the_next_run(
    bare: SimulatedHost, provider: ProviderProcess
) -> None:
    bare.path(host_boot.INITRAMFS_STAMP).unlink()
    bare.inject(faults.InitramfsFails())
    with pytest.raises(StepFailed, match="No space left on device"):
        provider.create(HostBootProvider, boot_inputs(bare))
    assert not bare.path(host_boot.INITRAMFS_STAMP).exists()
    bare.clear_faults()


@pytest.mark.parametrize(
    ("fault", "seconds", "said"),
    [
        (
            faults.BootsOldKernelLine(),
            60,
            r"the running kernel lacks intel_iommu=on .*; look which entry",
        ),
        (faults.RebootNeverReturns(), 2, r"it did not come back within 2 s.*BMC"),
    ],
    ids=["boots its old line", "does not come back"],
)
def test_a_host_that_does_not_boot_as_it_must_is_not_taken_for_prepared(
    bare: SimulatedHost, provider: ProviderProcess, fault: Any, seconds: float, said: str
) -> None:
    bare.inject(fault)
    with pytest.raises(StepFailed, match=said):
        provider.create(HostBootProvider, boot_inputs(bare, reboot_timeout_seconds=seconds))
    bare.clear_faults()


class Stalled(SshHost):
    """A host that is asked by a computer which stands still for an hour after the first look."""

    def __init__(self, then: Completed | AdapterError) -> None:
        self.time = 0.0
        self._then = then

    @property
    def target(self) -> str:
        return "hgx-01"

    def now(self) -> float:
        """`Clock`."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """`Clock`."""
        self.time += 3600 + seconds

    def run(self, argv: Sequence[str], **_: Any) -> Completed:
        if argv[0] != "cat":
            return Completed(0, b"", "")
        if not self.time:
            return Completed(0, b"before\n", "")
        if isinstance(self._then, AdapterError):
            raise self._then
        return self._then


def test_a_host_is_looked_at_once_more_by_who_stood_still_until_the_end_of_patience() -> None:
    back = Stalled(Completed(0, b"after\n", ""))
    reboot(back, back, "before", 60)
    away = Stalled(UnreachableError("hgx-01", "look", "no SSH connection", "check it"))
    with pytest.raises(UnreachableError, match=r"did not come back within 60 s \(no SSH"):
        reboot(away, away, "before", 60)


def test_a_run_after_an_interrupted_one_finds_what_is_done(
    bare: SimulatedHost, provider: ProviderProcess
) -> None:
    """The machine has rebooted meanwhile: nothing is left to do, so nothing is rebooted."""
    before = boots(bare)
    made = provider.create(HostBootProvider, boot_inputs(bare))
    assert boots(bare) - before <= 1
    line = running(bare)
    assert "console=ttyS0,115200n8" in line, "what others have set is kept"
    for argument in boot_inputs(bare)["kernel_arguments"]:
        assert argument in line.split()
    assert made.outputs["drift"] == []
    before = boots(bare)
    again = provider.create(HostBootProvider, boot_inputs(bare))
    assert (again, boots(bare)) == (made, before)
    assert bare.run("sysctl -n fs.inotify.max_user_instances").stdout == "8192\n"


def test_drift_of_files_and_of_the_boot_loader_is_found_and_put_back(
    bare: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(HostBootProvider, boot_inputs(bare))
    bare.path(host_boot.LIMITS_FILE).unlink()
    bare.path(host_boot.GRUB_FILE).write_text("# empty\n")
    bare.sudo("update-grub")
    live = provider.read(HostBootProvider, made)
    drift = {(one["code"], *one["path"]) for one in live.outputs["drift"]}
    assert drift == {("boot.file-missing", host_boot.LIMITS_FILE), ("boot.next-arguments",)}
    assert provider.diff(HostBootProvider, live.outputs, boot_inputs(bare)).changes
    before = boots(bare)
    made = provider.update(HostBootProvider, made, boot_inputs(bare))
    assert provider.read(HostBootProvider, made).outputs["drift"] == []
    assert boots(bare) == before, "the running kernel has everything"


def test_functions_are_bound_by_address_and_ids_alone(
    bare: SimulatedHost, provider: ProviderProcess
) -> None:
    wrong = [
        FUNCTIONS[0] | {"address": "0000:05:00.0"},
        FUNCTIONS[1] | {"address": "0000:7f:00.0"},
        FUNCTIONS[0] | {"pci_class": "0108"},
    ]
    with pytest.raises(StepFailed) as failed:
        provider.create(VfioBindingProvider, vfio_inputs(bare, functions=wrong))
    assert "0000:05:00.0 is 10de:22a3, not 10de:2330" in str(failed.value)
    assert "0000:7f:00.0 is not there" in str(failed.value)
    assert f"{GPU} has class 030200, not 0108" in str(failed.value)
    assert not bare.path(vfio.LIST_PATH).exists()
    assert {driver(bare, f["address"]) for f in FUNCTIONS} == {None}

    made = provider.create(VfioBindingProvider, vfio_inputs(bare))
    assert {driver(bare, f["address"]) for f in FUNCTIONS} == {"vfio-pci"}
    others = ("0000:0f:00.0", "0000:06:00.0")
    assert {driver(bare, address) for address in others} == {None}, "neighbours are left alone"
    assert made.outputs["iommu_groups"][GPU] == "91"
    assert provider.create(VfioBindingProvider, vfio_inputs(bare)) == made


def test_a_function_that_came_off_and_a_disabled_unit_are_put_back(
    bare: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(VfioBindingProvider, vfio_inputs(bare))
    bare.sudo(f"echo {GPU} > /sys/bus/pci/drivers/vfio-pci/unbind; systemctl disable {vfio.UNIT}")
    live = provider.read(VfioBindingProvider, made)
    drift = {(one["code"], one["path"][0]) for one in live.outputs["drift"]}
    assert drift == {("vfio.unbound", GPU), ("vfio.unit-inactive", vfio.UNIT)}
    assert provider.diff(VfioBindingProvider, live.outputs, vfio_inputs(bare)).changes
    provider.update(VfioBindingProvider, made, vfio_inputs(bare))
    assert driver(bare, GPU) == "vfio-pci"
    assert bare.run(f"systemctl is-enabled {vfio.UNIT}").stdout == "enabled\n"


def test_neither_a_reboot_nor_a_release_while_a_vm_has_a_gpu(
    bare: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(VfioBindingProvider, vfio_inputs(bare))
    bare.set_partition_in_use(3, "vm-acme")  # module 1, which is GPU, among others
    before = boots(bare)
    more = [*boot_inputs(bare)["kernel_arguments"], "nosmt"]
    with pytest.raises(StepFailed) as failed:
        provider.create(HostBootProvider, boot_inputs(bare, kernel_arguments=more))
    assert "needs a reboot for nosmt, but processes 4203" in str(failed.value)
    assert "nosmt" not in bare.path(host_boot.GRUB_FILE).read_text()
    with pytest.raises(StepFailed, match="is in use"):
        provider.delete(VfioBindingProvider, made)
    with pytest.raises(StepFailed, match="is in use"):
        provider.update(VfioBindingProvider, made, vfio_inputs(bare, functions=FUNCTIONS[1:]))
    assert (driver(bare, GPU), boots(bare)) == ("vfio-pci", before)
    bare.set_partition_in_use(3, None)


def test_what_leaves_the_list_is_given_back(bare: SimulatedHost, provider: ProviderProcess) -> None:
    made = provider.create(VfioBindingProvider, vfio_inputs(bare))
    made = provider.update(VfioBindingProvider, made, vfio_inputs(bare, functions=FUNCTIONS[1:]))
    assert driver(bare, GPU) is None
    provider.delete(VfioBindingProvider, made)
    provider.delete(VfioBindingProvider, made)  # absent is done
    assert {driver(bare, f["address"]) for f in FUNCTIONS} == {None}
    assert not bare.path(vfio.LIST_PATH).exists()
    assert bare.run(f"systemctl is-enabled {vfio.UNIT}").stdout == "not-found\n"
    assert provider.read(VfioBindingProvider, made).id == ""


def test_destroy_takes_our_arguments_out_and_leaves_the_others(
    bare: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(HostBootProvider, boot_inputs(bare))
    provider.delete(HostBootProvider, made)
    provider.delete(HostBootProvider, made)
    config = bare.path("/boot/grub/grub.cfg").read_text()
    assert "iommu" not in config
    assert "console=ttyS0,115200n8" in config
    assert not any(bare.path(path).exists() for path in host_boot.host_files())
    assert "iommu" in running(bare), "until the next boot"
    assert provider.read(HostBootProvider, made).id == ""


def test_a_gpu_in_use_on_another_driver_is_never_taken(
    hosts_pool: Any, start_provider: StartProvider
) -> None:
    host = bare_host(hosts_pool)
    provider = start_provider(host)
    host.run(
        "sudo -n tee /etc/default/grub.d/99.cfg", stdin='GRUB_CMDLINE_LINUX="intel_iommu=on"\n'
    )
    host.sudo("update-grub")
    restart(host)
    assert driver(host, GPU) == "nouveau"
    host.inject(faults.DeviceHeld(address=GPU))
    at_boot = host.run(f"sudo -n sh -s -- bind {GPU}=10de:2330=0302", stdin=SCRIPT)
    assert at_boot.returncode == 1
    assert "in use on driver nouveau (pid:1411); it is left alone" in at_boot.stderr
    other = host.run(f"sudo -n sh -s -- bind {GPU}=10de:22a3=", stdin=SCRIPT)
    assert other.returncode == 1
    assert "is 10de:2330, not 10de:22a3" in other.stderr
    assert driver(host, GPU) == "nouveau"
    with pytest.raises(StepFailed, match=r"in use on driver nouveau \(pid:1411\)"):
        provider.create(VfioBindingProvider, vfio_inputs(host))
    assert driver(host, GPU) == "nouveau"
    host.clear_faults()
    host.inject(faults.DeviceRefusesUnbind(address=GPU))
    with pytest.raises(StepFailed, match="it does not let go"):
        provider.create(VfioBindingProvider, vfio_inputs(host))
    host.clear_faults()
    provider.create(VfioBindingProvider, vfio_inputs(host))
    assert driver(host, GPU) == "vfio-pci"


def test_a_red_hat_machine_is_told_by_grubby(
    hosts_pool: Any, start_provider: StartProvider
) -> None:
    host = bare_host(hosts_pool, system="rocky")
    provider = start_provider(host)
    made = provider.create(HostBootProvider, boot_inputs(host))
    assert "iommu=pt" in running(host)
    fewer = [a for a in boot_inputs(host)["kernel_arguments"] if a != "pci=realloc"]
    made = provider.update(HostBootProvider, made, boot_inputs(host, kernel_arguments=fewer))
    entry = host.path("/boot/loader/entries/default.conf")
    assert "pci=realloc" not in entry.read_text()
    provider.delete(HostBootProvider, made)
    assert "iommu" not in entry.read_text()
    assert "crashkernel=512M" in entry.read_text()


def test_a_prepared_machine_is_as_our_own_preparation_leaves_it(
    hosts: Any, start_provider: StartProvider
) -> None:
    (host,) = hosts()
    provider = start_provider(host)
    host.forget()
    arguments = host_boot.kernel_arguments(cpu=host_boot.Cpu.INTEL, huge_pages_1g_by_numa_node={})
    provider.create(
        HostBootProvider,
        boot_inputs(host, kernel_arguments=list(arguments), huge_pages_1g={}, reboot="refuse"),
    )
    kinds = {
        ("10de:2330", "0302"): "0f 10 41 44 86 87 b8 bb",
        ("10de:22a3", "0680"): "05 06 07 08",
    }
    listed = [
        {"address": f"0000:{bus}:00.0", "pci_id": pci_id, "pci_class": pci_class}
        for (pci_id, pci_class), buses in kinds.items()
        for bus in buses.split()
    ]
    listed.append({"address": "0000:03:00.1", "pci_id": "11f8:4128"})
    provider.create(VfioBindingProvider, vfio_inputs(host, functions=listed))
    said = json.dumps([dict(entry) for entry in host.journal()])
    assert "update-grub" not in said
    assert '"restart"' not in said
