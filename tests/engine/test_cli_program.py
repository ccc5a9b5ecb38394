"""Flags and variables whose effect shows only with a real program and real providers."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.processkit import Engine
from tests.engine.warmkit import Warm


@pytest.fixture
def engine(tmp_path: Path, warm: Warm) -> Iterator[Engine]:
    made = Engine(tmp_path, [warm.engine])
    yield made
    made.end()


def test_a_preview_says_which_outputs_change(engine: Engine) -> None:
    program = "import pulumi\nfrom things import *\nThing('a')\n"
    engine.program(program + "pulumi.export('x', 1)\npulumi.export('gone', 2)\n")
    assert "+ x   : 1" in engine.run("preview")
    engine.up()
    engine.program(program + "pulumi.export('x', 3)\npulumi.export('new', 4)\n")
    output = engine.run("preview")
    assert "~ x   : 1 => 3" in output
    assert "+ new : 4" in output
    assert "- gone: 2" in output
    engine.program("import os\nos._exit(4)\n")
    assert "Outputs:" not in engine.run("preview", expect=1)


def test_a_plan_that_meets_a_protected_resource_is_told_as_failed(engine: Engine) -> None:
    program = "from things import *\nThing('a', opts=pulumi.ResourceOptions(protect=True"
    engine.program(f"{program}))\n")
    engine.up()
    engine.program(f"{program}, replace_on_changes=['what']))\n".replace("'a',", "'a', 'other',"))
    output = engine.run("preview", expect=1)
    assert "unable to replace resource" in output
    assert "error: preview failed" in output
    output = engine.up(expect=1)
    assert "unable to replace resource" in output
    assert "update failed" not in output


def test_what_a_program_logs_for_developers_is_shown_to_them(engine: Engine) -> None:
    engine.program("import pulumi\npulumi.log.debug('inner workings')\n")
    assert "inner workings" not in engine.run("preview")
    assert "inner workings" in engine.run("preview", "--debug")


def test_a_preview_may_be_a_stream_of_events(engine: Engine) -> None:
    engine.program("from things import *\nThing('a')\n")
    engine.env["PULUMI_ENABLE_STREAMING_JSON_PREVIEW"] = "1"
    streamed = [json.loads(line) for line in _stdout(engine, "preview", "--json").splitlines()]
    assert "preludeEvent" in streamed[0]
    assert "cancelEvent" in streamed[-1]


def test_a_program_that_hangs_is_ended_by_two_interrupts(engine: Engine) -> None:
    engine.program(
        "import os, pathlib, time\n"
        "pathlib.Path(os.environ['WORLD'], 'created').touch()\n"
        "time.sleep(600)\n"
    )
    running = engine.start("up", "--yes", "--skip-preview")
    engine.wait_for("created")
    for _ in range(2):
        running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=120)
    assert running.returncode == 8, output
    assert "^C received" in output
    assert "Traceback" not in output
    assert not engine.processes()
    engine.program("from things import *\nThing('a')\n")
    engine.up()


def _stdout(engine: Engine, *arguments: str) -> str:
    return subprocess.run(
        [*engine.command, *arguments],
        cwd=engine.folder,
        env=engine.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
