"""The script that installs packages, run for real on simulated machines of both families."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from gpuclusters.config.nodes import PACKAGES
from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost

SCRIPT = Path(__file__).resolve().parents[3] / "gpuclusters/host/scripts/install_packages.sh"


def install(host: SimulatedHost, *packages: str) -> tuple[int | None, str]:
    done = host.run(f"sudo -n sh -s -- {shlex.join(packages)}", stdin=SCRIPT.read_text())
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("system", "installed", "said"),
    [
        (
            "ubuntu",
            {"qemu-system-x86", "libvirt-clients", "ovmf"},
            "qemu-system-x86 1:10.1.0+ds-5ubuntu2 is installed",
        ),
        # The Red Hat family has other names for the same.
        ("rocky", {"qemu-kvm", "libvirt-daemon-kvm", "edk2-ovmf"}, ""),
    ],
)
def test_packages_are_installed_once_and_never_upgraded_by_the_way(
    hosts: Hosts, system: str, installed: set[str], said: str
) -> None:
    (host,) = hosts(1, condition="bare", system=system)
    assert host.run("virsh list").returncode == 127
    assert install(host, *PACKAGES)[0] == 0
    assert host.run("virsh --version").returncode == 0
    code, again = install(host, *PACKAGES)
    assert (code, said in again) == (0, True)
    (entry,) = host.journal("packages")
    assert installed <= set(entry["installed"])


def test_a_version_that_is_not_there_and_a_lock_that_is_held_are_said(hosts: Hosts) -> None:
    (host,) = hosts(1, condition="bare")
    code, said = install(host, "psmisc=1.0")
    assert code != 0
    assert "Version '1.0' for 'psmisc' was not found" in said
    host.inject(faults.PackageManagerLocked())
    code, said = install(host, "psmisc")
    assert code != 0
    assert "It is held by process 1193 (unattended-upgr)" in said


def test_an_installation_that_was_cut_off_is_finished_first(hosts: Hosts) -> None:
    (host,) = hosts(1, condition="bare")
    host.inject(faults.PackageInstallationCutOff())
    refused = host.sudo("apt-get install -y psmisc")
    assert (refused.returncode, "dpkg was interrupted" in refused.stderr) == (100, True)
    assert "unpacked but not yet configured" in host.sudo("dpkg --audit").stdout
    assert install(host, "psmisc")[0] == 0
    assert host.sudo("dpkg --audit").stdout == ""
    assert install(host, "psmisc")[0] == 0
    assert sum("finished" in entry for entry in host.journal("packages")) == 1
