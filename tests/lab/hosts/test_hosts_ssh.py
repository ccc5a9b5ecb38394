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
from tests.fixtures.tables import beside
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
ANSWERS = beside(__file__, "ssh.yaml")


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
    row = ANSWERS[case]
    status, text, errors = ssh(vm, row["run"], **row.get("how", {}))
    assert status == row.get("exit", 0), errors
    assert row.get("says", "") in text
    assert row.get("complains", "") in errors


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
