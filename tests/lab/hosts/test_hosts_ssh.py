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
    made.sudo(
        f"printf '%s ' {VM_ADDRESS} > {KNOWN}; cut -d ' ' -f 1,2 {HOST_KEY} >> {KNOWN}; "
        f"printf '%s ssh-ed25519 AAAAC3Nz\\n' {VM_ADDRESS} > /tmp/changed; : > /tmp/nothing; "
        f"cp {KEY} /tmp/open; chmod 644 /tmp/open; ssh-keygen -q -t ed25519 -N '' -f /tmp/other"
    )
    return made


@pytest.fixture
def vm(host: SimulatedHost) -> Iterator[SimulatedHost]:
    yield host
    host.clear_faults()


DENIED = "Permission denied (publickey).\n"
ANSWERS = {
    "its fabric manager": ("nv-fabricmanager --version", {}, 0, "version is : 595.58.03\n", ""),
    "its service": ("systemctl is-active nvidia-fabricmanager", {}, 0, "active\n", ""),
    "its address": (
        "cat /usr/share/nvidia/nvswitch/fabricmanager.cfg",
        *({}, 0, f"\nFM_CMD_BIND_INTERFACE={VM_ADDRESS}\n", ""),
    ),
    "a failure": ("cat /none", {}, 1, "", "No such file"),
    "no unit": ("systemctl is-active unheard-of", {}, 4, "inactive\n", ""),
    "no program": ("nvidia-smi -q", {}, 127, "", "command not found"),
    "a shell's line": (
        '"cat /none; hostname; sudo -n tail -n 1 /var/log/fabricmanager.log"',
        *({}, 0, "fabric-manager\nSuccessfully configured", "No such file"),
    ),
    "another key": ("true", {"key": "/tmp/other"}, 255, "", f"fm@{VM_ADDRESS}: {DENIED}"),
    "another account": ("true", {"to": f"root@{VM_ADDRESS}"}, 255, "", DENIED),
    "no key": ("true", {"key": "/tmp/none"}, 255, "", "not accessible: No such file"),
    "an open key": ("true", {"key": "/tmp/open"}, 255, "", "too open"),
    "a changed host": ("true", {"known": "/tmp/changed"}, 255, "", "IDENTIFICATION HAS CHANGED"),
    "an unknown host": (
        *("true", {"known": "/tmp/nothing"}, 255, ""),
        "Host key verification failed.\n",
    ),
    "a bad option": ("true", {"more": "-o ProxyJumpp=x"}, 255, "", "option: ProxyJumpp"),
    "a bad flag": ("true", {"more": "-Z"}, 255, "", "unknown option -- Z"),
    "nobody there": ("true", {"to": "fm@192.168.250.9"}, 255, "", "No route to host"),
}
"""Command, how it is called, exit code, and what is in its output and errors."""


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


@pytest.mark.parametrize("case", ANSWERS)
def test_it_answers_as_openssh(vm: SimulatedHost, case: str) -> None:
    command, how, code, says, complains = ANSWERS[case]
    status, text, errors = ssh(vm, command, **how)
    assert (status, says in text, complains in errors) == (code, True, True), (text, errors)


def test_an_ordinary_account_cannot_read_the_key(vm: SimulatedHost) -> None:
    done = vm.run(f"ssh -n -i {KEY} -o StrictHostKeyChecking=no fm@{VM_ADDRESS} true")
    assert (done.returncode, DENIED in done.stderr) == (255, True)


def test_no_vm_that_refuses_or_is_off_is_reached(vm: SimulatedHost) -> None:
    vm.inject(faults.VmRefusesSsh())
    assert "Connection refused" in ssh(vm, "true")[2]
    vm.clear_faults()
    vm.sudo("virsh destroy fabric-manager")
    try:
        status, _, errors = ssh(vm, "true")
        assert (status, "No route to host" in errors) == (255, True)
    finally:
        vm.sudo("virsh start fabric-manager")
    assert ssh(vm, "true")[0] == 0
