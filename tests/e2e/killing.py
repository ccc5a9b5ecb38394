"""Runs of the engine that are killed, and the ones that carry on."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lab import tools
from tests.e2e.conftest import SILENCE_SECONDS, Checkout, kill_all, told

STARTS, ENDS = "resourcePreEvent", "resOutputsEvent"
AGAIN = "To terminate immediately, press ^C again"
CHANGES = {"create", "update", "replace", "create-replacement", "delete-replaced", "delete"}


@dataclass(frozen=True)
class Kill:
    """An end of a run that it did not choose: when a step of this kind comes to its turn."""

    kind: str
    """The resource's class."""
    what: Literal["engine", "everything", "ctrl-c"] = "engine"
    """The engine alone (program and providers go on for a while, as after a crash), these too, or nothing:
    Ctrl-C twice, after which the run ends without waiting for what is under way."""
    seconds: float = 0
    """How long the step is at work by then."""
    event: str = STARTS


def kill_at(process: subprocess.Popen[str], kills: Sequence[Kill]) -> Kill | None:
    """End a run at the first of these; None if it ended by itself before."""
    by_event = {(kill.event, kill.kind): kill for kill in kills}
    said = list[str]()
    lines = told(process)
    for line in lines:
        said.append(line)
        kill = next((k for one in _steps(line) if (k := by_event.get(one))), None)
        if kill is None:
            continue
        time.sleep(kill.seconds)
        _end(process, kill, lines)
        # Of the last steps only a line or two are left to say: then it may have been quicker.
        return kill if process.wait(SILENCE_SECONDS) else None
    assert process.wait() == 0, "".join(said[-20:])
    return None


def _steps(line: str) -> list[tuple[str, str]]:
    """The event and the resource's class, if a line tells of a change."""
    with contextlib.suppress(ValueError):
        for event, about in json.loads(line).items():
            metadata = about.get("metadata", {}) if event in (STARTS, ENDS) else {}
            if metadata.get("op") in CHANGES:
                return [(event, metadata["urn"].split("::")[2].rsplit(":", 1)[-1])]
    return []


def _end(process: subprocess.Popen[str], kill: Kill, lines: Iterator[str]) -> None:
    if kill.what == "everything":
        kill_all(process)
    elif kill.what == "engine":
        process.kill()
    else:
        process.send_signal(signal.SIGINT)
        for line in lines:
            # Two signals at once may come as one.
            if AGAIN in line:
                process.send_signal(signal.SIGINT)
            assert "Traceback" not in line


def up_through_kills(dev: Checkout, kills: Sequence[Kill]) -> list[Kill]:
    """Begin an `up` again after each of these, until it ends by itself; gives those that it has met.

    What began and ended while the last moments of a run were let pass is met no more.
    """
    started = dev.run("lab", "start")
    assert started.returncode == 0, started.stdout + started.stderr
    (dev.lab / "state").mkdir(exist_ok=True)
    assert dev.engine("stack", "init").returncode == 0
    left, finished = list(kills), 0
    while killed := kill_at(dev.start_engine("up", "--yes", "--skip-preview", "--json"), left):
        left.remove(killed)
        if killed.what == "ctrl-c":
            locks = dev.lab / "state" / ".pulumi" / "locks"
            assert not list(locks.rglob("*.json")), "a run that was told to end holds its lock"
        else:
            assert dev.engine("cancel", "--yes").returncode == 0
        free_release_names(dev)
        assert finished <= len(dev.state()), "a finished step was lost"
        finished = len(dev.state())
    return [kill for kill in kills if kill not in left]


def free_release_names(dev: Checkout) -> None:
    """Uninstall the releases that Helm has and the state has not: their names are in use for ever.

    Everything else that a killed run has begun is found by the next one.
    """
    known = {
        resource.get("id") for resource in dev.state() if resource["type"].endswith(":Release")
    }
    for release in json.loads(_helm(dev, "list", "--all-namespaces", "--output", "json")):
        name, namespace = release["name"], release["namespace"]
        if f"{namespace}/{name}" not in known:
            _helm(dev, "uninstall", name, "--namespace", namespace, "--wait")


def _helm(dev: Checkout, *arguments: str) -> str:
    command = [str(tools.resolve("helm")), *arguments]
    command += ["--kubeconfig", str(dev.lab / "kubeconfig")]
    done = subprocess.run(command, env=dev.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
