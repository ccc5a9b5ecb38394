"""apt, dpkg, systemd and the kernel of a real machine, prepared for a driver and for RKE2."""

from __future__ import annotations

from typing import Any

import pytest

from gpuclusters.core.errors import AdapterError
from gpuclusters.driver import model as driver
from gpuclusters.driver.resource import GpuDriverProvider
from gpuclusters.host.script import run_script
from lab.machine.qemu import GPUS
from tests.machine.conftest import RealMachine
from tests.providers.provider_process import ProviderProcess

REPOSITORY = "/srv/repository"
PACKAGE = """
set -e
mkdir -p {at} /tmp/package/DEBIAN
cd {at}
printf 'Package: {name}\\nVersion: {version}\\nArchitecture: all\\nMaintainer: lab\\nDescription: lab\\n' \\
    >/tmp/package/DEBIAN/control
dpkg-deb -b /tmp/package {name}_{version}.deb >/dev/null
for one in *.deb; do
    dpkg-deb -f $one
    printf 'Filename: ./%s\\nSize: %s\\n' $one $(stat -c %s $one)
    printf 'SHA256: %s\\n\\n' $(sha256sum <$one | cut -d' ' -f1)
done >Packages
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:{at} ./' >/etc/apt/sources.list
"""


def publish(machine: RealMachine, name: str, version: str) -> None:
    """A package of the repository on the machine itself, the only one it knows."""
    machine.sudo(PACKAGE.format(at=REPOSITORY, name=name, version=version))


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
