"""The engine as a command with real processes: programs and providers that misbehave."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.leash import Leash
from engine.plugins import PluginError, PluginProcess
from tests.engine.processkit import COLD, Engine
from tests.engine.warmkit import Warm


@pytest.fixture
def engine(tmp_path: Path, warm: Warm) -> Iterator[Engine]:
    made = Engine(tmp_path, [warm.engine])
    yield made
    made.end()


@pytest.fixture
def cold(engine: Engine) -> Engine:
    """With processes as a user starts them."""
    engine.command = COLD
    return engine


def test_a_provider_that_dies_in_a_call_is_named_and_the_state_is_kept(engine: Engine) -> None:
    engine.program("from things import *\nThing('good')\nThing('bad', 'die')\n")
    output = engine.up(expect=1)
    assert "the provider for 'pulumi-python' ended with exit code 3 during Create" in output
    assert "Traceback" not in output
    assert "bad" not in engine.names()
    engine.program("from things import *\nThing('good')\nThing('bad')\n")
    engine.up()
    assert {"good", "bad"} <= set(engine.names())


def test_a_provider_that_takes_its_time_to_die_is_named_too(engine: Engine) -> None:
    engine.program("from things import *\nThing('bad', 'die slowly')\n")
    output = engine.up(expect=1)
    assert "the provider for 'pulumi-python' ended with exit code 4 during Create" in output


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


def test_an_exception_shows_the_programs_own_lines(cold: Engine) -> None:
    cold.program("def declare():\n    return {}['missing']\n\n\ndeclare()\n")
    output = cold.up(expect=1)
    assert "Program failed with an unhandled exception" in output
    assert "KeyError: 'missing'" in output
    assert "__main__.py" in output
    assert "program_runner" not in output
    assert "asyncio" not in output


def test_a_program_that_ends_before_it_begins_deletes_nothing(engine: Engine) -> None:
    engine.program("from things import *\nThing('a')\n")
    engine.up()
    engine.program("import os\nos._exit(0)\n")
    before = engine.names()
    assert "ended before it registered anything" in engine.up(expect=1)
    assert engine.names() == before


def test_a_stack_without_a_program_is_refused(engine: Engine) -> None:
    output = engine.up(expect=1)
    assert "there is no program" in output
    assert "__main__.py does not exist" in output


def test_a_python_that_is_not_there_is_named(cold: Engine) -> None:
    cold.program("import pulumi\n")
    cold.env["PULUMI_PYTHON_CMD"] = "/no/such/python"
    output = cold.up(expect=1)
    assert "/no/such/python" in output
    assert "Traceback" not in output


def test_a_plugin_that_is_not_installed_is_named_with_what_to_do(engine: Engine) -> None:
    engine.program(
        "import pulumi\npulumi.CustomResource('nowhere:index:Thing', 'a', {},"
        " pulumi.ResourceOptions(version='1.2.3'))\n"
    )
    output = engine.up(expect=1)
    assert "no provider for the package 'nowhere' 1.2.3" in output
    assert "pulumi plugin install resource nowhere 1.2.3" in output


def test_hooks_are_refused_by_name(engine: Engine) -> None:
    engine.program(
        "import pulumi\nfrom things import *\n"
        "hook = pulumi.ResourceHook('h', lambda args: None)\n"
        "Thing('a', opts=pulumi.ResourceOptions("
        "hooks=pulumi.ResourceHookBinding(before_create=[hook])))\n"
    )
    assert "does not support resource hooks" in engine.up(expect=1)


def test_secrets_are_in_no_argument_and_no_environment(cold: Engine) -> None:
    # Nobody else's, also where this test runs a second time on the same machine.
    token = f"tok-{secrets.token_hex(16)}"
    cold.run("config", "set", "--secret", "token", token, "--stack", "dev")
    cold.program(
        "import os, pathlib, pulumi\n"
        "token = pulumi.Config().require('token')\n"
        f"assert token == {token!r}\n"
        "for entry in pathlib.Path('/proc').glob('[0-9]*'):\n"
        "    for name in ('cmdline', 'environ'):\n"
        "        try:\n"
        "            text = (entry / name).read_bytes()\n"
        "        except OSError:\n"
        "            continue\n"
        "        assert token.encode() not in text, (entry, name)\n"
    )
    cold.up()


def test_nothing_outlives_an_engine_that_is_killed(cold: Engine) -> None:
    cold.program("from things import *\nThing('slow', 'hang')\n")
    process = cold.start("up", "--yes", "--skip-preview", "--stack", "dev")
    cold.wait_for("created")
    process.kill()
    process.communicate(timeout=120)
    deadline = time.monotonic() + 120
    while cold.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert cold.processes() == []
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


def test_ctrl_c_twice_ends_what_a_provider_has_started(cold: Engine) -> None:
    cold.program("from things import *\nThing('bad', 'start another')\n")
    process = cold.start("up", "--yes", "--skip-preview", "--stack", "dev")
    cold.wait_for("another")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while not process.stdout.readline().startswith("^C received"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert cold.processes() == []


def test_a_program_that_hangs_is_ended_by_ctrl_c(cold: Engine) -> None:
    cold.program(
        "import os, pathlib, time\nfrom things import *\n"
        "Thing('a')\n(WORLD / 'hangs').write_text('')\ntime.sleep(600)\n"
    )
    process = cold.start("up", "--yes", "--skip-preview", "--stack", "dev")
    cold.wait_for("hangs")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 8, output
    assert cold.processes() == []
    assert "pending_operations" not in cold.state()


def test_ctrl_c_twice_gives_up_a_call_that_hangs_and_keeps_it_pending(engine: Engine) -> None:
    engine.program("from things import *\nThing('slow', 'hang')\n")
    process = engine.start("up", "--yes", "--skip-preview", "--stack", "dev")
    engine.wait_for("created")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while not process.stdout.readline().startswith("^C received"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 8, output
    assert engine.processes() == []
    assert [op["type"] for op in engine.state()["pending_operations"]] == ["creating"]
