"""NVIDIA's driver on hosts, through the SDK's provider process, real SSH and the real scripts."""

from functools import partial

import lab.hosts
from gpuclusters.driver import model as gpu_driver
from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import inputs_of

OLD, NEW = "580.178.04", "595.91.07"


inputs = partial(inputs_of, "GpuDriver")


def state(host: SimulatedHost) -> lab.hosts.GpuState:
    return lab.hosts.gpu_state(host.folder, host.name)


def restarts(host: SimulatedHost) -> int:
    return sum(entry.get("action") == "reboot" for entry in host.journal("power"))


def test_a_bare_machine_gets_a_driver_keeps_it_and_gets_the_next_one(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-gpu-a100", condition="bare")
    driver = start_provider(host).on("GpuDriver", host)
    made = driver.create()
    assert driver.id == f"{host.name}/driver"
    assert made["driver_version"] == OLD
    assert (made["gpu_product"], made["gpu_count"]) == ("NVIDIA A100-SXM4-80GB", 8)
    assert (made["drift"], made["reboot_pending"]) == ([], False)
    assert (state(host).usable, state(host).nouveau) == (8, False)
    assert restarts(host) == 1  # for nouveau alone
    held = host.run("apt-mark showhold").stdout.split()
    assert {"nvidia-utils-580-server", "linux-image-generic"} <= set(held)
    assert "Package-Blacklist" in host.path(gpu_driver.UPGRADES_FILE).read_text()

    host.forget()
    # Another branch: packages, restart, and the fabric manager of the very same version.
    assert driver.update(version=NEW)["driver_version"] == NEW
    assert (state(host).usable, restarts(host)) == (8, 1)
    assert host.run("systemctl is-active nvidia-fabricmanager").stdout == "active\n"

    driver.delete()
    assert state(host).installed_version is None
    assert not host.path(gpu_driver.NOUVEAU_FILE).exists()
    assert host.run("apt-mark showhold").stdout.split() == []


def test_what_changed_on_a_machine_is_drift_and_is_put_back(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-gpu-a100")
    driver = start_provider(host).on("GpuDriver", host)
    # Somebody's driver of the same version is taken over, without a restart.
    driver.create()
    assert restarts(host) == 0

    host.sudo(
        "systemctl stop nvidia-fabricmanager; rm /etc/modprobe.d/*.conf; "
        "apt-mark unhold nvidia-utils-580-server"
    )
    said = driver.drift()
    assert f"{gpu_driver.NOUVEAU_FILE} differs" in said
    assert "not held: nvidia-utils-580" in said
    assert "fabric manager is inactive" in said
    driver.drifted()
    host.sudo(
        "apt-get install -y --allow-change-held-packages linux-modules-nvidia-595-server-open-$(cat "
        "/proc/sys/kernel/osrelease) nvidia-utils-595-server=595.91.07*"
    )
    assert f"module {NEW} is on the disk and {OLD} in the kernel" in driver.drift()
    driver.refresh()
    made = driver.update()
    assert (made["drift"], state(host).driver_version, state(host).usable) == ([], OLD, 8)


def test_all_that_is_wrong_is_said_at_once_and_nothing_is_touched(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-gpu-v100", condition="bare")
    host.forget()
    driver = start_provider(host).on("GpuDriver", host, version=NEW, reboot="refuse")
    driver.refused(
        "create",
        "the PCI bus shows 4 GPUs and 8 are declared",
        "it has 0 NVSwitches and some are declared",
        "branch 595 does not know its GPUs (10de:1db1)",
        "its GPUs (10de:1db1) have no GPU System Processor, which open modules need",
        "it must be restarted: nouveau has its GPUs; and restarts are not allowed",
    )
    assert host.journal("packages") == []
    assert not host.path(gpu_driver.NOUVEAU_FILE).exists()


def test_gpus_in_use_are_left_alone(hosts: Hosts, start_provider: StartProvider) -> None:
    (host,) = hosts(1, platform="plain-gpu-v100")
    wanted = {"gpus": 4, "nvswitch": False, "modules": "proprietary"}
    driver = start_provider(host).on("GpuDriver", host, **wanted)
    driver.create()
    host.inject(faults.GpuInUse(pid=4711, name="train.py"))
    busy = "in use by processes 4711 train.py; drain the node"
    driver.refused("update", busy, version="580.126.09")
    assert state(host).installed_version == OLD
    host.clear_faults()
    # Prebuilt modules are there for the newest driver of a branch alone.
    another = "kernel modules are for another driver version"
    driver.refused("update", another, version="580.126.09")
    host.inject(faults.PackageGone(name="linux-modules"))
    gone = ("no repository on the host has this package", "multiverse")
    driver.refused("update", *gone, version="570.211.01")


def test_for_the_operators_driver_a_host_only_loses_nouveau(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    bare, prepared = hosts(2, platform="plain-gpu-a100", condition="bare")
    wanted = {"connection": bare.connection, "source": "operator", "gpus": 8}
    driver = start_provider(bare).of("GpuDriver", wanted)
    made = driver.create()
    assert (made["driver_version"], made["gpu_count"]) == ("", 8)
    assert (state(bare).nouveau, state(bare).installed_version, restarts(bare)) == (False, None, 1)
    assert driver.drift() == ""

    prepared.sudo("apt-get install -y nvidia-utils-580-server")
    there = ("a driver is installed on the host", "driver.source: host")
    driver.refused("create", *there, connection=prepared.connection)
