"""Flags and variables whose effect shows only with a real program and real providers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.processkit import Engine
from tests.engine.warmkit import Warm

THING = "urn:pulumi:dev::proc::pulumi-python:dynamic/test:Thing::"


@pytest.fixture
def engine(tmp_path: Path, warm: Warm) -> Iterator[Engine]:
    made = Engine(tmp_path, [warm.engine])
    yield made
    made.end()


def _provider(engine: Engine) -> dict[str, Any]:
    resources = engine.state()["resources"]
    found = next(r for r in resources if r["type"] == "pulumi:providers:pulumi-python")
    inputs: dict[str, Any] = found.get("inputs", {})
    return inputs


def test_a_refresh_and_a_destroy_can_run_the_program_for_its_providers(engine: Engine) -> None:
    engine.program("import pulumi\nfrom things import *\nThing('a')\npulumi.export('x', 1)\n")
    engine.up()
    engine.run("config", "set", "token", "fresh")
    engine.run("refresh", "--yes", "--skip-preview")
    assert "proc:token" not in _provider(engine)
    engine.program(
        "import pulumi\nfrom things import *\nThing('a', 'other')\nThing('b')\npulumi.export('x', 2)\n"
    )
    before = engine.state()["resources"]
    output = engine.run("refresh", "--run-program", "--preview-only")
    assert "unchanged" in output
    assert engine.state()["resources"] == before
    engine.run("refresh", "--run-program", "--yes", "--skip-preview")
    assert _provider(engine)["proc:token"] == "fresh"
    after = engine.state()["resources"]
    assert [r["urn"] for r in after] == [r["urn"] for r in before]
    assert next(r for r in after if r["urn"].endswith("::a"))["inputs"]["what"] == "work"
    assert engine.run("stack", "output", "x") == "1\n"
    engine.program("raise ValueError('no token today')\n")
    output = engine.run("destroy", "--run-program", "--yes", "--skip-preview", expect=1)
    assert "no token today" in output
    assert "a" in engine.names()
    engine.program("from things import *\nThing('a')\n")
    engine.run("destroy", "--run-program", "--yes")
    assert engine.names() == []


def test_a_provider_that_runs_already_is_used_and_left_running(engine: Engine) -> None:
    engine.program("from things import *\nThing('a')\n")
    provider = subprocess.Popen(
        [sys.executable, "-u", "-m", "pulumi.dynamic", "127.0.0.1:1"],
        cwd=engine.folder,
        env=engine.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert provider.stdout is not None
    port = provider.stdout.readline().strip()
    engine.env["PULUMI_DEBUG_PROVIDERS"] = f"other:1,pulumi-python:{port}"
    engine.up()
    assert (engine.world / "created").read_text() == str(provider.pid)
    assert provider.poll() is None
    provider.kill()
    provider.wait()
    provider.stdout.close()
    engine.program("from things import *\nThing('b')\n")
    assert f"127.0.0.1:{port}, by PULUMI_DEBUG_PROVIDERS" in engine.up(expect=1)
    engine.env["PULUMI_DEBUG_PROVIDERS"] = "pulumi-python"
    assert "'pulumi-python' is not NAME:PORT" in engine.up(expect=1)


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


def test_events_go_to_a_file_and_a_preview_may_be_a_stream_of_them(engine: Engine) -> None:
    engine.program("from things import *\nThing('a')\n")
    engine.run("up", "--yes", "--event-log", "events.json")
    lines = [json.loads(line) for line in (engine.folder / "events.json").read_text().splitlines()]
    assert [line["summaryEvent"]["isPreview"] for line in lines if "summaryEvent" in line] == [
        True,
        False,
    ]
    engine.env["PULUMI_ENABLE_STREAMING_JSON_PREVIEW"] = "1"
    streamed = [json.loads(line) for line in _stdout(engine, "preview", "--json").splitlines()]
    assert "preludeEvent" in streamed[0]
    assert "cancelEvent" in streamed[-1]
    assert "no/such/folder" in engine.run("preview", "--event-log", "no/such/folder/x", expect=1)


def test_a_create_that_was_cut_off_is_not_imported_by_pulumi_s_own_flag_either(
    engine: Engine,
) -> None:
    engine.program("from things import *\nThing('a')\nThing('b', 'hang')\n")
    running = engine.start("up", "--yes", "--skip-preview")
    engine.wait_for("created")
    while len(engine.state().get("pending_operations") or ()) != 1 or "a" not in engine.names():
        assert running.poll() is None
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    engine.run("cancel", "--yes")
    output = engine.run(
        "refresh", "--yes", "--import-pending-creates", f"{THING}b",
        "--import-pending-creates", "the-id",
    )  # fmt: skip
    assert "2 unchanged" in output
    state = engine.state()
    assert not state.get("pending_operations")
    assert f"{THING}b" not in [r["urn"] for r in state["resources"]]


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
