"""apt, dpkg, systemd and the kernel of a real machine, prepared for a driver and for RKE2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.core.errors import AdapterError
from gpuclusters.driver import model as driver
from gpuclusters.driver.resource import GpuDriverProvider
from gpuclusters.host.script import run_script
from lab.machine.qemu import GPUS
from tests.machine.conftest import RealMachine
from tests.providers.provider_process import ProviderProcess, StepFailed

REPOSITORY = "/srv/repository"
FOLDER = Path(__file__).parent


def run_file(machine: RealMachine, name: str, *words: object) -> None:
    """A script beside this file, as root."""
    machine.sudo(f"sh -s -- {' '.join(map(str, words))}", stdin=(FOLDER / name).read_text())


def publish(machine: RealMachine, name: str, version: str) -> None:
    """A package, with its files if there are any."""
    run_file(machine, "publish.sh", name, version)


def install(machine: RealMachine, *packages: str) -> str:
    done = run_script(
        machine.ssh,
        "host/install_packages",
        packages,
        tried="install packages",
        timeout_seconds=300,
    )
    return done.stdout.decode()


def version(machine: RealMachine, name: str) -> str:
    return machine.run(f"dpkg-query -W -f '${{Version}}' {name}").stdout


def test_packages_are_installed_once_and_never_upgraded_by_the_way(machine: RealMachine) -> None:
    publish(machine, "lab-tool", "1.0")
    install(machine, "lab-tool", "psmisc")
    publish(machine, "lab-tool", "1.1")
    assert "lab-tool 1.0 is installed" in install(machine, "lab-tool")
    assert version(machine, "lab-tool") == "1.0"
    install(machine, "lab-tool=1.1")
    assert version(machine, "lab-tool") == "1.1"
    with pytest.raises(AdapterError, match="Version '9' for 'lab-tool' was not found"):
        install(machine, "lab-tool=9")


def test_an_installation_that_was_cut_off_is_finished_first(machine: RealMachine) -> None:
    publish(machine, "lab-half", "1.0")
    publish(machine, "lab-next", "1.0")
    machine.sudo(f"dpkg --unpack {REPOSITORY}/lab-half_1.0.deb")
    assert "lab-half" in machine.sudo("dpkg --audit")
    install(machine, "lab-next")
    assert machine.sudo("dpkg --audit") == ""


def test_a_lock_that_another_holds_is_waited_for(machine: RealMachine) -> None:
    publish(machine, "lab-late", "1.0")
    hold = (
        'python3 -c \'import fcntl, time; file = open(\\"/var/lib/dpkg/lock-frontend\\", \\"w\\"); '
        "fcntl.lockf(file, fcntl.LOCK_EX); time.sleep(15)'"
    )
    machine.sudo(f'systemd-run --quiet sh -c "{hold}"')
    install(machine, "lab-late")
    assert version(machine, "lab-late") == "1.0"


def driver_inputs(machine: RealMachine, **changes: Any) -> dict[str, Any]:
    return {"connection": machine.connection, "source": "operator", "gpus": len(GPUS)} | changes


def test_a_machine_for_the_operators_driver_keeps_its_kernel(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    before = machine.boot_id()
    made = provider.create(GpuDriverProvider, driver_inputs(machine))
    assert made.outputs["drift"] == []
    kernel = machine.run("uname -r").stdout.strip()
    held = machine.run("apt-mark showhold").stdout.split()
    assert f"linux-image-{kernel}" in held
    said = machine.sudo("unattended-upgrade --dry-run --debug 2>&1")
    (listed,) = (line for line in said.splitlines() if line.startswith("Initial blacklist:"))
    assert {"linux-", "nvidia-"} <= set(listed.split())
    inside = machine.sudo(f"lsinitramfs /boot/initrd.img-{kernel}")
    assert driver.NOUVEAU_FILE.lstrip("/") in inside
    assert provider.create(GpuDriverProvider, driver_inputs(machine)) == made
    assert machine.boot_id() == before, "nothing here needs a restart"

    machine.sudo(f"apt-mark unhold {' '.join(held)}; rm {driver.UPGRADES_FILE}")
    found = provider.read(GpuDriverProvider, made).outputs["drift"]
    assert {one["code"] for one in found} == {"driver.not-held", "driver.file-changed"}
    made = provider.update(GpuDriverProvider, made, driver_inputs(machine))
    provider.delete(GpuDriverProvider, made)
    assert machine.run("apt-mark showhold").stdout == ""
    assert machine.sudo("grep -rl 'Written by gpu-clusters' /etc || true") == ""


@pytest.fixture
def ubuntu(machine: RealMachine) -> Iterator[str]:
    """The system that NVIDIA's packages are for, with its kernel's headers: the kernel's release."""
    kernel = machine.run("uname -r").stdout.strip()
    publish(machine, f"linux-headers-{kernel}", "6.12")
    named = "ID=ubuntu\\nID_LIKE=debian\\nVERSION_ID=24.04\\n"
    machine.sudo(f"rm /etc/os-release; printf '{named}' >/etc/os-release")
    yield kernel
    machine.sudo("ln -sf ../usr/lib/os-release /etc/os-release")


def test_nvidias_packages_are_pinned_and_another_version_waits_for_a_reboot(
    machine: RealMachine, provider: ProviderProcess, ubuntu: str
) -> None:
    first, second = "595.58.03", "595.71.05"
    for one in (first, second):
        run_file(machine, "nvidia-open.sh", one, ubuntu, len(GPUS))
        publish(machine, "nvidia-open", one)
    wanted = {"source": "host", "version": first, "packages": "nvidia", "reboot": "refuse"}
    made = provider.create(GpuDriverProvider, driver_inputs(machine, **wanted))
    outputs = made.outputs
    assert (outputs["driver_version"], outputs["gpu_count"], outputs["drift"]) == (first, 8, [])
    assert {"nvidia-open", f"linux-image-{ubuntu}"} <= set(
        machine.run("apt-mark showhold").stdout.split()
    )
    machine.sudo("apt-get -q update; apt-get -y upgrade")
    assert version(machine, "nvidia-open") == first, "nobody upgrades it by the way"

    wanted["version"] = second
    with pytest.raises(StepFailed, match=f"the kernel runs driver {first} and not {second}"):
        provider.update(GpuDriverProvider, made, driver_inputs(machine, **wanted))
    assert version(machine, "nvidia-open") == first
    before = machine.boot_id()
    wanted["reboot"] = "allow"
    made = provider.update(GpuDriverProvider, made, driver_inputs(machine, **wanted))
    assert machine.boot_id() != before
    assert (made.outputs["driver_version"], made.outputs["drift"]) == (second, [])

    wanted["version"] = "595.99.01"
    with pytest.raises(StepFailed, match=r"595\.99\.01"):
        provider.update(GpuDriverProvider, made, driver_inputs(machine, **wanted))
    assert version(machine, "nvidia-open") == second
    provider.delete(GpuDriverProvider, made)
    assert version(machine, "nvidia-open") == ""
    assert machine.run("apt-mark showhold").stdout == ""


def test_what_the_cis_profile_of_rke2_needs(machine: RealMachine) -> None:
    keys = "vm.panic_on_oom=0\nvm.overcommit_memory=1\nkernel.panic=10\nkernel.panic_on_oops=1\n"
    machine.sudo(
        f"mkdir -p /usr/local/share/rke2; printf '{keys}' >/usr/local/share/rke2/rke2-cis-sysctl.conf"
    )
    unit = "[Service]\nType=notify\nTimeoutStartSec=0\nExecStart=/bin/sleep infinity\n[Install]\n"
    machine.sudo(
        f"printf '{unit}WantedBy=multi-user.target\\n' >/etc/systemd/system/rke2-server.service"
    )
    for _ in range(2):
        run_script(machine.ssh, "rke2/prepare", ["cis"], tried="prepare")
    assert machine.sudo("getent passwd etcd").startswith("etcd:x:")
    # RKE2's unit says that it is there when it has joined, and is never timed out: nobody waits.
    run_script(machine.ssh, "rke2/start", ["rke2-server.service"], tried="start")
    assert machine.run("systemctl is-active rke2-server").stdout == "activating\n"
    now = machine.sudo("sysctl vm.overcommit_memory kernel.panic kernel.panic_on_oops").split("\n")
    assert now[:3] == ["vm.overcommit_memory = 1", "kernel.panic = 10", "kernel.panic_on_oops = 1"]
    machine.sudo("systemctl disable --now rke2-server")
