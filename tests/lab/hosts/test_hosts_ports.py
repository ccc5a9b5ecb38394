"""Ports of simulated hosts are given out in turn: a port that a host comes back to is nobody else's."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lab.hosts import ports

ANOTHER_SERVER = "from lab.hosts import ports; print(ports.listen('x', None).getsockname()[1])"


@pytest.fixture(autouse=True)
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is kept whose turn it is: here for this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gpu-clusters" / "next-host-port"


def chosen() -> int:
    with ports.listen("hgx-01", None) as server:
        return int(server.getsockname()[1])


def test_a_port_that_was_let_go_is_the_last_that_any_server_comes_to() -> None:
    first = chosen()
    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_SERVER], capture_output=True, text=True, timeout=120
    )
    second, third = int(done.stdout), chosen()
    # Those between are taken by others, who have them in a row.
    steps = [(later - first) % 6000 for later in (second, third)]
    assert 0 < steps[0] < steps[1]


def test_ports_that_others_have_or_only_hold_are_passed_over(turns: Path) -> None:
    with contextlib.ExitStack() as others:
        taken = [others.enter_context(ports.listen("x", None)).getsockname()[1] for _ in range(300)]
        turns.write_text(str(taken[0]))
        free = chosen()
        assert free not in taken
        held = others.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", free))
        turns.write_text(str(free))
        assert chosen() != free


@pytest.mark.parametrize("turn", ["32000", "not a port", None])
def test_after_the_last_port_and_without_a_turn_there_are_ports_all_the_same(
    turns: Path, turn: str | None
) -> None:
    if turn is None:
        turns.parent.write_text("a file where the folder belongs")
    else:
        chosen()
        turns.write_text(turn)
    assert chosen() in range(26000, 32000)
