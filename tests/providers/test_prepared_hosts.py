"""What prepares a host: boot, functions on vfio-pci, units; real scripts on simulated machines."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from gpuclusters.boot import model as host_boot
from gpuclusters.boot.host import reboot
from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.core import scripts
from gpuclusters.core.errors import UnreachableError
from gpuclusters.host.ssh import Completed
from gpuclusters.vfio import decide as vfio
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import Waiting
from tests.providers.answering import Answers
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import INPUTS, Resource, inputs_of

SCRIPT = scripts.read("vfio/vfio_users.sh") + scripts.read("vfio/vfio_bind.sh")
"""What the unit runs at every boot."""
GPU = "0000:86:00.0"
FUNCTIONS = INPUTS["VfioBinding"]["functions"]
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


vfio_inputs = partial(inputs_of, "VfioBinding")


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
def boot(bare: SimulatedHost, start_provider: StartProvider) -> Iterator[Resource]:
    yield start_provider(bare).of("HostBoot", boot_inputs(bare))
    bare.clear_faults()


@pytest.fixture
def binding(bare: SimulatedHost, start_provider: StartProvider) -> Resource:
    return start_provider(bare).on("VfioBinding", bare)


def test_nothing_is_written_while_others_contradict_or_own_a_file(
    bare: SimulatedHost, boot: Resource
) -> None:
    mine = bare.path("/etc/modprobe.d/gpu-clusters.conf")
    mine.write_text("blacklist mine\n")
    other = bare.path("/etc/default/grub.d/50-other.cfg")
    other.write_text('GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=off"\n')
    boot.refused(
        "create",
        "intel_iommu=off, which contradicts intel_iommu=on",
        f"{host_boot.MODPROBE_FILE} is not ours",
    )
    assert not bare.path(host_boot.GRUB_FILE).exists()
    other.unlink()
    mine.unlink()


def test_a_refused_reboot_says_which_command_and_changes_the_next_boot_only(
    bare: SimulatedHost, boot: Resource
) -> None:
    boot.wanted["reboot"] = "refuse"
    boot.refused("create", "the running kernel lacks intel_iommu=on", "sudo systemctl reboot")
    assert "iommu" not in running(bare)
    assert "iommu=pt" in bare.path("/boot/grub/grub.cfg").read_text()


@pytest.mark.parametrize(
    ("fault", "seconds", "said"),
    [
        (faults.InitramfsFails(), 60, ("No space left on device",)),
        (
            faults.BootsOldKernelLine(),
            60,
            ("the running kernel lacks intel_iommu=on ", "; look which entry"),
        ),
        (faults.RebootNeverReturns(), 2, ("it did not come back within 2 s", "BMC")),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_a_host_that_does_not_boot_as_it_must_is_not_taken_for_prepared(
    bare: SimulatedHost, boot: Resource, fault: Any, seconds: float, said: tuple[str, ...]
) -> None:
    unbuilt = isinstance(fault, faults.InitramfsFails)
    if unbuilt:
        bare.path(host_boot.INITRAMFS_STAMP).unlink()
    bare.inject(fault)
    boot.refused("create", *said, reboot_timeout_seconds=seconds)
    assert bare.path(host_boot.INITRAMFS_STAMP).exists() is not unbuilt


def test_a_host_is_looked_at_once_more_by_who_stood_still_until_the_end_of_patience() -> None:
    class Stalled(Waiting):
        """A computer that stands still for an hour after the first look."""

        def sleep(self, seconds: float) -> None:
            super().sleep(3600 + seconds)

    before, done = Completed(0, b"before\n", ""), Completed(0, b"", "")
    reboot(Answers(done, before, Completed(0, b"after\n", "")), Stalled(), "before", 60)
    away = UnreachableError("hgx-01", "look", "no SSH connection", "check it")
    with pytest.raises(UnreachableError, match=r"did not come back within 60 s \(no SSH"):
        reboot(Answers(done, before, away), Stalled(), "before", 60)


def test_a_run_after_an_interrupted_one_finds_what_is_done_and_puts_back_what_drifts(
    bare: SimulatedHost, boot: Resource
) -> None:
    """The machine has rebooted meanwhile: nothing is left to do, so nothing is rebooted."""
    before = bare.boots()
    made = boot.create()
    assert bare.boots() - before <= 1
    line = running(bare)
    assert "console=ttyS0,115200n8" in line, "what others have set is kept"
    assert set(boot.wanted["kernel_arguments"]) <= set(line.split())
    assert made["drift"] == []
    before = bare.boots()
    assert boot.create() == made
    assert bare.run("sysctl -n fs.inotify.max_user_instances").stdout == "8192\n"

    bare.path(host_boot.LIMITS_FILE).unlink()
    bare.path(host_boot.GRUB_FILE).write_text("# empty\n")
    bare.sudo("update-grub")
    drift = {(one["code"], *one["path"]) for one in boot.drifted().outputs["drift"]}
    assert drift == {("boot.file-missing", host_boot.LIMITS_FILE), ("boot.next-arguments",)}
    boot.update()
    assert boot.drift() == ""
    assert bare.boots() == before, "the running kernel has everything"


def test_functions_are_bound_by_address_and_ids_alone(
    bare: SimulatedHost, binding: Resource
) -> None:
    wrong = [
        FUNCTIONS[0] | {"address": "0000:05:00.0"},
        FUNCTIONS[1] | {"address": "0000:7f:00.0"},
        FUNCTIONS[0] | {"pci_class": "0108"},
    ]
    binding.refused(
        "create",
        "0000:05:00.0 is 10de:22a3, not 10de:2330",
        "0000:7f:00.0 is not there",
        f"{GPU} has class 030200, not 0108",
        functions=wrong,
    )
    assert not bare.path(vfio.LIST_PATH).exists()
    assert {driver(bare, f["address"]) for f in FUNCTIONS} == {None}

    made = binding.create()
    assert {driver(bare, f["address"]) for f in FUNCTIONS} == {"vfio-pci"}
    others = ("0000:0f:00.0", "0000:06:00.0")
    assert {driver(bare, address) for address in others} == {None}, "neighbours are left alone"
    assert made["iommu_groups"][GPU] == "91"
    assert binding.create() == made

    bare.sudo(f"echo {GPU} > /sys/bus/pci/drivers/vfio-pci/unbind; systemctl disable {vfio.UNIT}")
    drift = {(one["code"], one["path"][0]) for one in binding.drifted().outputs["drift"]}
    assert drift == {("vfio.unbound", GPU), ("vfio.unit-inactive", vfio.UNIT)}
    binding.update()
    assert driver(bare, GPU) == "vfio-pci"
    assert bare.run(f"systemctl is-enabled {vfio.UNIT}").stdout == "enabled\n"


def test_neither_a_reboot_nor_a_release_while_a_vm_has_a_gpu(
    bare: SimulatedHost, boot: Resource, binding: Resource
) -> None:
    binding.create()
    bare.set_partition_in_use(3, "vm-acme")  # module 1, which is GPU, among others
    before = bare.boots()
    more = [*boot.wanted["kernel_arguments"], "nosmt"]
    boot.refused("create", "needs a reboot for nosmt, but processes 4203", kernel_arguments=more)
    assert "nosmt" not in bare.path(host_boot.GRUB_FILE).read_text()
    binding.refused("delete", "is in use")
    binding.refused("update", "is in use", functions=FUNCTIONS[1:])
    assert (driver(bare, GPU), bare.boots()) == ("vfio-pci", before)
    bare.set_partition_in_use(3, None)


def test_what_leaves_the_list_is_given_back_and_destroy_takes_out_what_is_ours_alone(
    bare: SimulatedHost, boot: Resource, binding: Resource
) -> None:
    binding.create()
    binding.update(functions=FUNCTIONS[1:])
    assert driver(bare, GPU) is None
    boot.create()
    for made in (binding, boot):
        made.delete()
        made.delete()  # absent is done
        assert made.look().id == ""
    assert {driver(bare, f["address"]) for f in FUNCTIONS} == {None}
    assert not bare.path(vfio.LIST_PATH).exists()
    assert bare.run(f"systemctl is-enabled {vfio.UNIT}").stdout == "not-found\n"
    config = bare.path("/boot/grub/grub.cfg").read_text()
    assert "iommu" not in config
    assert "console=ttyS0,115200n8" in config
    assert not any(bare.path(path).exists() for path in host_boot.host_files())
    assert "iommu" in running(bare), "until the next boot"


def test_a_gpu_in_use_on_another_driver_is_never_taken(
    hosts_pool: Any, start_provider: StartProvider
) -> None:
    host = bare_host(hosts_pool)
    binding = start_provider(host).on("VfioBinding", host)
    host.run(
        "sudo -n tee /etc/default/grub.d/99.cfg", stdin='GRUB_CMDLINE_LINUX="intel_iommu=on"\n'
    )
    host.sudo("update-grub")
    host.reboot()
    assert driver(host, GPU) == "nouveau"
    host.inject(faults.DeviceHeld(address=GPU))
    for entry, said in (
        ("10de:2330=0302", "in use on driver nouveau (pid:1411); it is left alone"),
        ("10de:22a3=", "is 10de:2330, not 10de:22a3"),
    ):
        at_boot = host.run(f"sudo -n sh -s -- bind {GPU}={entry}", stdin=SCRIPT)
        assert at_boot.returncode == 1
        assert said in at_boot.stderr
        assert driver(host, GPU) == "nouveau"
    binding.refused("create", "in use on driver nouveau (pid:1411)")
    assert driver(host, GPU) == "nouveau"
    host.clear_faults()
    host.inject(faults.DeviceRefusesUnbind(address=GPU))
    binding.refused("create", "it does not let go")
    host.clear_faults()
    binding.create()
    assert driver(host, GPU) == "vfio-pci"


def test_a_red_hat_machine_is_told_by_grubby(
    hosts_pool: Any, start_provider: StartProvider
) -> None:
    host = bare_host(hosts_pool, system="rocky")
    boot = start_provider(host).of("HostBoot", boot_inputs(host))
    boot.create()
    assert "iommu=pt" in running(host)
    boot.wanted["kernel_arguments"].remove("pci=realloc")
    boot.update()
    entry = host.path("/boot/loader/entries/default.conf")
    assert "pci=realloc" not in entry.read_text()
    boot.delete()
    assert "iommu" not in entry.read_text()
    assert "crashkernel=512M" in entry.read_text()


def test_a_prepared_machine_is_as_our_own_preparation_leaves_it(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host)
    host.forget()
    arguments = host_boot.kernel_arguments(cpu=host_boot.Cpu.INTEL, huge_pages_1g_by_numa_node={})
    provider.create(
        "HostBoot",
        boot_inputs(host, kernel_arguments=list(arguments), huge_pages_1g={}, reboot="refuse"),
    )
    board = PRESETS[Platform.SUPERMICRO_HGX_H100]
    gpus = [FUNCTIONS[0] | {"address": address} for address in board.gpus.values()]
    listed = gpus + [FUNCTIONS[1] | {"address": address} for address in board.switches]
    listed.append({"address": "0000:03:00.1", "pci_id": "11f8:4128"})
    provider.on("VfioBinding", host, functions=listed).create()
    said = json.dumps([dict(entry) for entry in host.journal()])
    assert "update-grub" not in said
    assert '"restart"' not in said
