"""Processes of the lab's servers: which one a record means, and that none is left."""

import subprocess
import sys

import psutil
import pytest

from lab.server_process import end, living


@pytest.mark.parametrize("seconds", [-3600.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3600.0])
def test_a_server_is_known_after_the_clock_was_set_and_no_other_with_its_pid_is(
    seconds: float,
) -> None:
    me = psutil.Process()
    found = living({"pid": me.pid, "created": me.create_time() + seconds})
    assert found == (me if abs(seconds) < 3600 else None)


# Heeds no wish to end; its child takes a while to end after it.
DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
slow = "import sys, time; sys.stdin.read(); time.sleep(1)"
child = subprocess.Popen([sys.executable, "-c", slow], stdin=subprocess.PIPE)
print(child.pid, flush=True)
time.sleep(1e6)
"""


def test_a_server_that_heeds_no_wish_to_end_is_ended_and_so_are_its_children() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        child = psutil.Process(int(made.stdout.readline()))
        server = psutil.Process(made.pid)
        end(server, 0.2)
        assert not runs(server)
        assert not runs(child)


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
