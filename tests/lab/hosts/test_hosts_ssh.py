"""The stand-in of OpenSSH's client keeps its contract; the service VM is entered as the real one would be.

Sources: ssh(1), "ssh exits with the exit status of the remote command or with 255 if an error occurred";
ssh_config(5), StrictHostKeyChecking: "If this flag is set to yes, ssh(1) will never automatically add host
keys [...] and refuses to connect to hosts whose host key has changed"; cloud-init's `users`, `ssh`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.fabric.manager_config import VM_ADDRESS
from gpuclusters.service_vm.model import STATE_FOLDER
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.providers.test_service_vm_on_hosts import wanted, without_vm

KEY = f"{STATE_FOLDER}/fabric-manager.client_key"
HOST_KEY = f"{STATE_FOLDER}/fabric-manager.host_key.pub"
KNOWN = "/tmp/known"


@pytest.fixture(scope="module")
def host(hosts_pool: Any) -> SimulatedHost:
    """A host whose service VM was made by our own resource."""
    from gpuclusters.service_vm.resource import ServiceVmProvider

    made: SimulatedHost = hosts_pool.add(1, "supermicro-hgx-h100")[0]
    without_vm(made)
    provider = ServiceVmProvider()
    provider.ssh_key = made.client_key.read_text()
    provider.create(wanted(made))
    made.sudo(f"printf '%s ' {VM_ADDRESS} > {KNOWN}; cut -d ' ' -f 1,2 {HOST_KEY} >> {KNOWN}")
    return made


@pytest.fixture
def vm(host: SimulatedHost) -> Iterator[SimulatedHost]:
    yield host
    host.clear_faults()


def ssh(
    host: SimulatedHost,
    command: str,
    *,
    key: str = KEY,
    known: str = KNOWN,
    to: str = f"fm@{VM_ADDRESS}",
    more: str = "",
) -> tuple[int, str, str]:
    done = host.sudo(
        f"ssh -n -i {key} -o BatchMode=yes -o StrictHostKeyChecking=yes "
        f"-o UserKnownHostsFile={known} {more} {to} {command}"
    )
    return done.returncode, done.stdout, done.stderr


def test_root_of_the_host_enters_and_finds_what_the_seed_says(vm: SimulatedHost) -> None:
    assert ssh(vm, "nv-fabricmanager --version") == (
        0,
        "Fabric Manager version is : 595.58.03\n",
        "",
    )
    assert ssh(vm, "systemctl is-active nvidia-fabricmanager") == (0, "active\n", "")
    status, text, _ = ssh(vm, "cat /usr/share/nvidia/nvswitch/fabricmanager.cfg")
    assert status == 0
    assert f"FM_CMD_BIND_INTERFACE={VM_ADDRESS}\n" in text
    assert "FABRIC_MODE=1\n" in text


def test_it_ends_as_the_remote_command_does(vm: SimulatedHost) -> None:
    assert ssh(vm, "true")[0] == 0
    assert ssh(vm, "cat /none")[0] == 1
    assert ssh(vm, "systemctl is-active unheard-of")[:2] == (4, "inactive\n")
    status, _, errors = ssh(vm, "nvidia-smi -q")
    assert (status, "command not found" in errors) == (127, True)


def test_several_commands_are_one_line_of_a_shell(vm: SimulatedHost) -> None:
    status, text, errors = ssh(
        vm, '"cat /none; hostname; sudo -n tail -n 1 /var/log/fabricmanager.log"'
    )
    assert (status, "No such file" in errors) == (0, True)
    assert text.startswith("fabric-manager\nSuccessfully configured")


def test_another_key_and_another_account_are_refused(vm: SimulatedHost) -> None:
    vm.sudo("rm -f /tmp/other; ssh-keygen -q -t ed25519 -N '' -f /tmp/other")
    denied = f"fm@{VM_ADDRESS}: Permission denied (publickey).\n"
    assert ssh(vm, "true", key="/tmp/other") == (255, "", denied)
    assert ssh(vm, "true", to=f"root@{VM_ADDRESS}")[0] == 255
    status, _, errors = ssh(vm, "true", key="/tmp/none")
    assert (status, "not accessible: No such file" in errors) == (255, True)
    vm.sudo(f"cp {KEY} /tmp/open; chmod 644 /tmp/open")
    status, _, errors = ssh(vm, "true", key="/tmp/open")
    assert (status, "too open" in errors) == (255, True)


def test_an_ordinary_account_cannot_read_the_key(vm: SimulatedHost) -> None:
    done = vm.run(f"ssh -n -i {KEY} -o StrictHostKeyChecking=no fm@{VM_ADDRESS} true")
    assert (done.returncode, "Permission denied (publickey)" in done.stderr) == (255, True)


def test_a_vm_with_another_host_key_is_not_entered(vm: SimulatedHost) -> None:
    vm.sudo(f"printf '%s ssh-ed25519 AAAAC3Nz\\n' {VM_ADDRESS} > /tmp/changed; : > /tmp/nothing")
    status, _, errors = ssh(vm, "true", known="/tmp/changed")
    assert (status, "IDENTIFICATION HAS CHANGED" in errors) == (255, True)
    status, _, errors = ssh(vm, "true", known="/tmp/nothing")
    assert (status, errors.endswith("Host key verification failed.\n")) == (255, True)


def test_what_it_does_not_know_is_refused(vm: SimulatedHost) -> None:
    status, _, errors = ssh(vm, "true", more="-o ProxyJumpp=x")
    assert (status, "Bad configuration option: ProxyJumpp" in errors) == (255, True)
    status, _, errors = ssh(vm, "true", more="-Z")
    assert (status, "unknown option -- Z" in errors) == (255, True)


def test_no_other_machine_and_no_vm_that_is_off_is_reached(vm: SimulatedHost) -> None:
    assert "No route to host" in ssh(vm, "true", to="fm@192.168.250.9")[2]
    vm.inject(faults.VmRefusesSsh())
    assert "Connection refused" in ssh(vm, "true")[2]
    vm.clear_faults()
    vm.sudo("virsh destroy fabric-manager")
    try:
        assert ssh(vm, "true")[0] == 255
        assert "No route to host" in ssh(vm, "true")[2]
    finally:
        vm.sudo("virsh start fabric-manager")
    assert ssh(vm, "true")[0] == 0
