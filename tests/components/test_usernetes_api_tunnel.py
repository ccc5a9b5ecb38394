"""The tunnel that a stack's program holds open for what it has in the cluster."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import Mock

import pulumi
import pytest

from components.host_connection import HostConnection
from gpuclusters.core.errors import BusyError, UnreachableError
from gpuclusters.host import ssh as ssh_forward
from gpuclusters.usernetes import api_tunnel
from gpuclusters.usernetes.addresses import ApiAccess
from tests.components.recorder import record
from tests.fixtures.made_up import CONNECTION

HOST = HostConnection(**CONNECTION, port=22, user="ops")
ENGINES = {**CONNECTION, "port": 22.0, "user": "ops", "iap": None}
OPENED = ("hgx-01 (192.0.2.1:22)", "a key", 16443, 6443)

Calls = list[tuple[str, str, int, int]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """What is opened, and is still open at the end."""
    calls: Calls = []

    @contextmanager
    def forward(
        connection: Any, credentials: Any, *, local_port: int, remote_port: int
    ) -> Iterator[None]:
        call = (connection.target, credentials.private_key, local_port, remote_port)
        calls.append(call)
        yield
        calls.remove(call)

    monkeypatch.setattr(ssh_forward, "forward", forward)
    with ExitStack() as still:
        monkeypatch.setattr(api_tunnel, "_OPEN", still)
        yield calls
    assert calls == []


def fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(ssh_forward, "forward", Mock(side_effect=error))


def reached(access: ApiAccess, kubeconfig: str) -> list[str]:
    found: list[str] = []

    def program() -> None:
        api_tunnel.open_first(
            pulumi.Output.from_input(kubeconfig),
            access=access,
            connection=HOST.as_input(),
            private_key="a key",
            remote_port=6443,
        ).apply(found.append)

    record(program)
    return found


def test_the_kubeconfig_is_known_when_the_tunnel_is_open_and_it_stays_open(opened: Calls) -> None:
    access = ApiAccess(through="tunnel", local_port=16443)
    assert reached(access, "clusters: []") == ["clusters: []"]
    assert opened == [OPENED]


@pytest.mark.parametrize(
    ("access", "kubeconfig"),
    [
        (ApiAccess(through="address", address="api.example.com"), "clusters: []"),
        (ApiAccess(through="loopback"), "clusters: []"),
        (ApiAccess(through="tunnel", local_port=16443), ""),
    ],
    ids=["address", "loopback", "no cluster"],
)
def test_where_there_is_nothing_to_tunnel_to_nothing_is_opened(
    opened: Calls, access: ApiAccess, kubeconfig: str
) -> None:
    assert reached(access, kubeconfig) == [kubeconfig]
    assert opened == []


def test_the_engines_numbers_are_no_obstacle(opened: Calls) -> None:
    api_tunnel.hold(ENGINES, "a key", local_port=16443, remote_port=6443)
    assert opened == [OPENED]


def test_a_tunnel_that_is_open_already_will_do(
    opened: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = BusyError("127.0.0.1:16443", "listen there", "another program listens there", "end it")
    fails(monkeypatch, busy)
    api_tunnel.hold(ENGINES, "a key", local_port=16443, remote_port=6443)
    assert opened == []


def test_a_tunnel_that_cannot_be_opened_is_told_and_ends_nothing(
    opened: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    away = UnreachableError("v1", "open a tunnel", "no route to host", "start it")
    fails(monkeypatch, away)
    api_tunnel.hold(ENGINES, "a key", local_port=16443, remote_port=6443)
    assert said == ["v1: could not open a tunnel: no route to host; start it"]
    assert opened == []
