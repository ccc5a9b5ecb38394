"""A run that is killed as a process, or meets a disk that is really full."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.backend import checkpoints
from tests.engine.processkit import DEV, Engine

WORLD = """\
import os, pathlib, time
from pulumi import ResourceOptions
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

def note(line):
    with open(os.path.join(os.environ["WORLD"], "calls"), "a") as calls:
        calls.write(line + "\\n")

class Provider(ResourceProvider):
    serialize_as_secret_always = False
    def create(self, props):
        note("begin " + props["name"])
        if props["name"] == os.environ.get("STOP_IN"):
            pathlib.Path(os.environ["WORLD"], "reached").touch()
            time.sleep(600)
        note("end " + props["name"])
        return CreateResult(props["name"], props)

class Thing(Resource, module="test", name="Thing"):
    def __init__(self, name, opts=None):
        super().__init__(Provider(), name, {"name": name, "text": "x" * 2000}, opts)
"""
PROGRAM = """\
from world import *
before = None
for name in "abcde":
    before = Thing(name, ResourceOptions(depends_on=[before] if before else []))
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path)
    (made.folder / "world.py").write_text(WORLD)
    made.program(PROGRAM)
    yield made
    made.end()


def calls(engine: Engine) -> list[str]:
    file = engine.world / "calls"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.timeout(300)
def test_a_run_killed_again_and_again_loses_nothing_and_repeats_nothing(engine: Engine) -> None:
    for stop in "bd":
        engine.env["STOP_IN"] = stop
        process = engine.start_up()
        engine.wait_for("reached")
        process.send_signal(signal.SIGKILL)
        process.wait()
        engine.end()
        (engine.world / "reached").unlink()
        found = checkpoints.read(engine.backend.bucket, DEV)
        ended = [line.split()[1] for line in calls(engine) if line.startswith("end")]
        made = [r["urn"].split("::")[-1] for r in found.resources if "test:Thing" in r["urn"]]
        assert sorted(made) == sorted(ended)
        cut_off = [op["resource"]["urn"].split("::")[-1] for op in found.pending_operations]
        assert cut_off[:1] == [stop]
        # The lock of the dead run keeps everybody away, this engine and Pulumi's own.
        refused = engine.up(expect=1)
        assert "currently locked" in refused
        engine.run("cancel", "--yes", "--stack", "dev")
    engine.env.pop("STOP_IN")
    engine.up()
    assert sorted(set(engine.names()) & set("abcde")) == list("abcde")
    ends = [line for line in calls(engine) if line.startswith("end")]
    assert sorted(ends) == [f"end {name}" for name in "abcde"]
    begun = [line for line in calls(engine) if line.startswith("begin")]
    assert sorted(begun) == sorted([*(f"begin {name}" for name in "abcde"), "begin b", "begin d"])


@pytest.mark.timeout(200)
def test_a_disk_that_is_full_stops_a_run_before_it_does_anything(engine: Engine) -> None:
    (engine.folder / "world.py").write_text(WORLD.replace("2000", "400_000"))

    def limit() -> None:
        # No file may become larger than this: that is what a full disk looks like to a writer.
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))

    done = subprocess.run(
        [sys.executable, "-m", "engine", "up", "--yes", "--skip-preview", "--stack", "dev"],
        cwd=engine.folder,
        env=engine.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.count("could not write") == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert calls(engine) == []
    # What the program registered without anybody having to do anything may be there.
    state = checkpoints.read(engine.backend.bucket, DEV)
    assert not any("test:Thing" in r["type"] for r in state.resources)
    assert state.pending_operations == []
    engine.up()
    assert sorted(set(engine.names()) & set("abcde")) == list("abcde")
