"""The engine as a command with real processes: programs and providers that misbehave."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.cli.runs import FIRST, SECOND, stoppable
from engine.leash import Leash
from engine.plugins import PluginError, PluginProcess
from tests.engine.processkit import PROGRAMS, Engine, cold, engine
from tests.fixtures.waiting import eventually

__all__ = ["cold", "engine"]


def test_the_last_words_of_a_provider_are_waited_for() -> None:
    # Said when the provider has ended already, as seems to happen where its readers come late.
    process = subprocess.Popen(
        ["sh", "-c", "exec >&-; (sleep 1; echo why >&2) & exit 4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    made = PluginProcess("slow", process, Leash(), lambda _: None)
    with pytest.raises(PluginError, match=r"exit code 4 before it served; its last output:\nwhy"):
        made.address()


def test_what_a_provider_and_a_program_print_is_shown(engine: Engine) -> None:
    engine.program("from things import *\nThing('a', 'print')\nprint('a line of the program')\n")
    output = engine.up()
    assert "a line of the provider" in output
    assert "a line of the program" in output


def test_secrets_are_in_no_argument_and_no_environment(cold: Engine) -> None:
    # Nobody else's, also where this test runs a second time on the same machine.
    token = f"tok-{secrets.token_hex(16)}"
    cold.run("config", "set", "--secret", "token", token, "--stack", "dev")
    cold.program(PROGRAMS["no secret in sight"].replace("TOKEN", token))
    cold.up()


def test_nothing_outlives_an_engine_that_is_killed(cold: Engine) -> None:
    cold.program("from things import *\nThing('slow', 'hang')\n")
    process = cold.start_up()
    cold.wait_for("created")
    process.kill()
    process.communicate(timeout=120)
    eventually(lambda: not cold.processes())
    assert [op["type"] for op in cold.state()["pending_operations"]] == ["creating"]


STARTER = """
import os, subprocess, sys, time
from engine.leash import Leash
leash = Leash()
os.environ["STARTER"] = str(os.getpid())
process = subprocess.Popen(leash.command([sys.argv[1]], sys.argv[2]), pass_fds=(leash.end,))
print(process.pid, flush=True)
time.sleep(600)
"""


def test_what_begins_after_its_starter_was_killed_ends_too(tmp_path: Path) -> None:
    python, waits = tmp_path / "python", tmp_path / "waits.py"
    python.write_text(
        "#!/bin/sh\nwhile kill -0 $STARTER; do sleep 0.05; done 2>/dev/null\n"
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o700)
    waits.write_text("import time\ntime.sleep(600)\n")
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, python, waits], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    starter.kill()
    starter.wait()
    try:
        # Both have the pipe open: it ends when both have ended.
        starter.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.kill(pid, signal.SIGKILL)
        raise


def test_a_program_that_hangs_is_ended_by_ctrl_c(cold: Engine) -> None:
    cold.program(
        "import os, pathlib, time\nfrom things import *\n"
        "Thing('a')\n(WORLD / 'hangs').write_text('')\ntime.sleep(600)\n"
    )
    process = cold.start_up()
    cold.wait_for("hangs")
    cold.interrupt(process)
    assert "pending_operations" not in cold.state()


@pytest.mark.parametrize(("what", "file"), [("hang", "created"), ("start another", "another")])
def test_ctrl_c_twice_gives_up_a_call_that_hangs_and_keeps_it_pending(
    cold: Engine, what: str, file: str
) -> None:
    cold.program(f"from things import *\nThing('slow', '{what}')\n")
    process = cold.start_up()
    cold.wait_for(file)
    cold.interrupt(process, times=2)
    assert [op["type"] for op in cold.state()["pending_operations"]] == ["creating"]


def test_ctrl_c_is_heard_while_the_main_thread_sleeps() -> None:
    """A wait for this lock does not look at signals, as that of Python's own when it has just begun."""
    libc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    said: list[str] = []
    heard = []
    with stoppable(said.append) as cancellation:

        def press_twice() -> None:
            for event in (cancellation.requested, cancellation.terminated):
                os.kill(os.getpid(), signal.SIGINT)
                heard.append(event.wait(60))
            libc.pthread_mutex_unlock(lock)

        libc.pthread_mutex_lock(lock)
        threading.Thread(target=press_twice).start()
        libc.pthread_mutex_lock(lock)
    assert heard == [True, True]
    assert said == [FIRST, SECOND]
