"""Each injected fault, as a real SSH client meets it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import asyncssh
import psutil
import pytest

from lab.hosts import faults, injecting
from lab.hosts.model import HostsError
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.waiting import eventually


@pytest.fixture
def host(hosts: Hosts) -> SimulatedHost:
    return hosts()[0]


def over_ssh(
    host: SimulatedHost, act: Callable[[asyncssh.SSHClientConnection], Awaitable[Any]]
) -> Any:
    async def run() -> Any:
        async with host.connect() as connection:
            return await asyncio.wait_for(act(connection), 120)

    return asyncio.run(run())


@pytest.mark.parametrize("fault", [faults.RefuseConnections(), faults.RebootNeverReturns()])
def test_nobody_else_gets_the_port_of_a_host_that_does_not_answer(
    host: SimulatedHost, fault: faults.Fault
) -> None:
    host.inject(fault)
    if isinstance(fault, faults.RebootNeverReturns):
        host.run("sudo -n systemctl reboot")
        eventually(host.refuses)
    assert host.refuses()
    for shares in (False, True):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shares)
            with pytest.raises(OSError, match="in use"):
                other.bind((host.endpoint.address, host.endpoint.port))
    host.clear_faults()
    if isinstance(fault, faults.RefuseConnections):
        assert host.run("true").returncode == 0


def test_connections_that_are_open_outlive_a_refusal(host: SimulatedHost) -> None:
    async def act(connection: asyncssh.SSHClientConnection) -> int | None:
        host.inject(faults.RefuseConnections())
        assert (await connection.run("exit 3")).exit_status == 3
        # Nor are they in the way of those that come afterwards.
        host.clear_faults()
        async with host.connect() as later:
            assert (await later.run("exit 4")).exit_status == 4
        return (await connection.run("exit 5")).exit_status

    assert over_ssh(host, act) == 5


def test_closing_the_connection_ends_a_running_command_with_all_its_children(
    host: SimulatedHost,
) -> None:
    # Not those of other runs of the tests on this machine.
    ours = {f"{number}{os.getpid()}" for number in (1, 2)}

    async def act(connection: asyncssh.SSHClientConnection) -> None:
        first, second = ours
        await connection.create_process(f"sleep {first} & sudo -n sleep {second} & wait")
        await asyncio.to_thread(eventually, lambda: len(sleeping(ours)) == 2)

    over_ssh(host, act)
    eventually(lambda: not sleeping(ours))


def test_a_fault_that_makes_no_sense_is_refused_by_name(host: SimulatedHost) -> None:
    given: list[tuple[str, dict[str, Any], str]] = [
        ("no-such-fault", {}, "no-such-fault"),
        ("disk-full", {"path": "etc"}, "absolute path"),
        ("disk-full", {"path": "/etc/../.."}, "absolute path"),
        ("hang", {"command": "("}, "not a regular expression"),
        ("fabric-manager", {"state": "sad"}, "state"),
        ("slow", {"seconds": 1, "colour": "red"}, "colour"),
    ]
    for kind, values, message in given:
        with pytest.raises(HostsError, match=message):
            faults.parse(kind, values)
    with pytest.raises(HostsError, match="no simulated host 'hgx-99999'"):
        injecting.inject(host.folder, "hgx-99999", faults.WrongHostKey())


def sleeping(arguments: set[str]) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or ("",))[0] == "sleep"
        and set(process.info["cmdline"]) & arguments
    ]
