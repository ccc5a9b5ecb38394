"""The stand-ins of libvirt keep their contract. Sources: virsh(1), libvirt's XML formats, qemu-img(1)."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from gpuclusters.service_vm.model import LAB_IMAGE
from tests.fixtures.hosts import SimulatedHost

DOMAIN = """<domain type='kvm'>
  <name>small</name>
  <memory unit='MiB'>512</memory>
  <vcpu>1</vcpu>
  <os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type><nvram>/x</nvram></os>
  <devices/>
</domain>
"""
NETWORK = "<network><name>own</name><bridge name='br-own'/></network>\n"


@pytest.fixture(scope="module")
def host(hosts_pool: Any) -> SimulatedHost:
    made: SimulatedHost = hosts_pool.add(1, "supermicro-hgx-h100")[0]
    return made


def virsh(host: SimulatedHost, line: str) -> tuple[int, str]:
    done = host.sudo(f"virsh {line}")
    return done.returncode, done.stdout + done.stderr


def test_a_domain_is_completed_when_it_is_defined_and_keeps_its_uuid(host: SimulatedHost) -> None:
    host.run("sudo -n tee /tmp/vm.xml", stdin=DOMAIN)
    assert virsh(host, "define --validate /tmp/vm.xml") == (
        0,
        "Domain 'small' defined from /tmp/vm.xml\n\n",
    )
    root = ET.fromstring(virsh(host, "dumpxml small")[1])
    uuid = root.findtext("uuid")
    assert uuid
    assert (root.find("os/type") or ET.Element("")).get("machine") != "q35"
    assert root.find("currentMemory") is not None
    code, said = virsh(host, "define /tmp/vm.xml")
    assert code == 1
    assert f"domain 'small' already exists with uuid {uuid}" in said
    assert virsh(host, "dominfo small")[1].splitlines()[:2] == [
        "Id:             -",
        "Name:           small",
    ]
    code, said = virsh(host, "undefine small")
    assert (code, "cannot undefine domain with nvram" in said) == (1, True)
    assert virsh(host, "undefine --nvram small")[0] == 0
    assert virsh(host, "dominfo small") == (1, "\nerror: failed to get domain 'small'\n")


def test_a_network_is_defined_started_and_goes(host: SimulatedHost) -> None:
    host.run("sudo -n tee /tmp/net.xml", stdin=NETWORK)
    assert virsh(host, "net-define /tmp/net.xml")[1] == "Network own defined from /tmp/net.xml\n\n"
    assert virsh(host, "net-start own")[0] == 0
    assert "network is already active" in virsh(host, "net-start own")[1]
    assert "Active:         yes" in virsh(host, "net-info own")[1]
    assert virsh(host, "net-destroy own")[0] == virsh(host, "net-undefine own")[0] == 0
    assert "no network with matching name 'own'" in virsh(host, "net-info own")[1]


def test_images_know_their_base(host: SimulatedHost) -> None:
    virsh(host, "list")
    image = LAB_IMAGE["path"]
    assert host.sudo(f"sha256sum {image}").stdout.split()[0] == LAB_IMAGE["sha256"]
    made = host.sudo(f"qemu-img create -q -f qcow2 -b {image} -F qcow2 /tmp/disk.qcow2 16G")
    assert made.returncode == 0, made
    info = host.sudo("qemu-img info --force-share /tmp/disk.qcow2").stdout
    assert f"backing file: {image}\n" in info
    assert "virtual size: 16 GiB (17179869184 bytes)" in info
    none = host.sudo("qemu-img create -f qcow2 -b /none -F qcow2 /tmp/x.qcow2")
    assert (none.returncode, "No such file or directory" in none.stderr) == (1, True)
