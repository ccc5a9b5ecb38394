"""Runs of `gpu-clusters up` that are killed, and the ones that carry on."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import psutil

from tests.docs.pages import DOCS, blocks
from tests.e2e.conftest import SILENCE_SECONDS, Checkout, kubectl

STARTS = "(creating|updating|deleting|replacing|creating replacement|deleting original)"
ENDS = "(created|updated|deleted|replaced|created replacement|deleted original)"
STEP = re.compile(rf"^ [-+~]+ +(?P<type>\S+) (?P<name>\S+) (?P<words>{STARTS}|{ENDS})\b")
AGAIN = "To terminate immediately, press ^C again"
ENGINE = "engine"
ORPHAN_SECONDS = 20.0
"""A second, and as much as a busy computer takes."""


@dataclass(frozen=True)
class Kill:
    """An end of a run that it did not choose: when a step of this kind comes to its turn."""

    kind: str
    """The resource's class."""
    what: Literal["engine", "everything", "ctrl-c"] = "engine"
    """The command and the engine (program and providers find out, as after a crash), these too, or nothing:
    Ctrl-C twice, after which the run ends without waiting for what is under way."""
    seconds: float = 0
    """How long the step is at work by then."""
    by_hand: str = ""
    """Repaired with the commands of docs/recover.md, given for this release (`NAMESPACE/NAME`); else the next
    `gpu-clusters up` does it."""


def told(process: subprocess.Popen[str]) -> Iterator[str]:
    """The lines that a run prints; one that is silent for long has to say where it waits."""
    assert process.stdout is not None
    lines: list[str] = []
    hangs = threading.Event()

    def ask() -> None:
        hangs.set()
        # Python prints what all threads do: see PYTHONFAULTHANDLER in the environment.
        for one in (*psutil.Process(process.pid).children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGABRT)

    while True:
        watch = threading.Timer(SILENCE_SECONDS, ask)
        watch.daemon = True
        watch.start()
        line = process.stdout.readline()
        watch.cancel()
        if not line:
            break
        lines.append(line)
        if not hangs.is_set():
            yield line
    text = "".join(lines)[-20000:]
    assert not hangs.is_set(), f"the run said nothing for {SILENCE_SECONDS} s:\n{text}"


def kill_at(process: subprocess.Popen[str], kills: Sequence[Kill]) -> Kill | None:
    """End a run at the first of these; None if it ended by itself before."""
    said = list[str]()
    lines = told(process)
    for line in lines:
        said.append(line)
        kill = next((one for one in kills if _is_at(line, one)), None)
        if kill is None:
            continue
        time.sleep(kill.seconds)
        _end(process, kill, lines)
        # Of the last steps only a line or two are left to say: then it may have been quicker.
        return kill if process.wait(SILENCE_SECONDS) else None
    assert process.wait() == 0, "".join(said[-60:])
    return None


def _is_at(line: str, kill: Kill) -> bool:
    step = STEP.match(line)
    return (
        step is not None
        and step["type"].rsplit(":", 1)[-1] == kill.kind
        and re.fullmatch(STARTS, step["words"]) is not None
    )


def _command_line(process: psutil.Process) -> list[str]:
    """Empty of a process that has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _stopped(engine: psutil.Process) -> list[psutil.Process]:
    """All that runs beneath it, halted: none begins another, which would live on."""
    found: list[psutil.Process] = []
    while new := [one for one in engine.children(recursive=True) if one not in found]:
        for one in new:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.suspend()
        found += new
    return found


def _end(process: subprocess.Popen[str], kill: Kill, lines: Iterator[str]) -> None:
    command = psutil.Process(process.pid)
    engine = next(
        one for one in (command, *command.children()) if {ENGINE, "up"} <= set(_command_line(one))
    )
    beneath = _stopped(engine) if kill.what == "everything" else engine.children(recursive=True)
    ours = [one for one in beneath if "gpuclusters.providers.server" in _command_line(one)]
    if kill.what == "ctrl-c":
        for one in {engine, command}:
            one.send_signal(signal.SIGINT)
        for line in lines:
            # Two signals at once may come as one.
            if AGAIN in line:
                engine.send_signal(signal.SIGINT)
            assert "Traceback" not in line
    else:
        also = beneath if kill.what == "everything" else []
        for one in (*also, engine, command):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
    _, alive = psutil.wait_procs(ours, ORPHAN_SECONDS)
    assert not alive, "dynamic providers go on without their engine"


def up_through_kills(dev: Checkout, kills: Sequence[Kill]) -> list[Kill]:
    """Begin an `up` again after each of these, until it ends by itself; gives those that it has met.

    What began and ended while the last moments of a run were let pass is met no more.
    """
    left, finished = list(kills), 0
    process = dev.start("up")
    while killed := kill_at(process, left):
        left.remove(killed)
        locks = list((dev.lab / "state" / ".pulumi" / "locks").rglob("*.json"))
        if killed.what == "ctrl-c":
            assert not locks, "a run that was told to end holds its lock"
        else:
            assert len(locks) == 1, "a killed run leaves its lock"
        if killed.by_hand:
            by_hand(dev, killed.by_hand)
        assert finished <= len(dev.state()), "a finished step was lost"
        finished = len(dev.state())
        if not left and not killed.by_hand:
            dev.up()
            break
        # By hand all of it: as somebody carries on who has `pulumi` alone.
        process = (
            dev.start("up", "--yes", "--skip-preview", engine=True)
            if killed.by_hand
            else dev.start("up")
        )
    assert not list((dev.lab / "state" / ".pulumi" / "locks").rglob("*.json"))
    _, alive = psutil.wait_procs(_providers(dev), ORPHAN_SECONDS)
    assert not alive, f"these go on without their engine: {[one.cmdline() for one in alive]}"
    return [kill for kill in kills if kill not in left]


def _providers(dev: Checkout) -> list[psutil.Process]:
    """Providers of the checkout, whoever has started them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline())
            if ("gpuclusters.providers.server" in words or "engine.stand_ins." in words) and (
                process.environ().get("GPU_CLUSTERS_LAB") == str(dev.lab)
            ):
                found.append(process)
    return found


def by_hand(dev: Checkout, release: str) -> None:
    """What docs/recover.md says under "By hand", for this release; but for the `up`, which comes next."""
    page = DOCS / "recover.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    begin = lines.index("### By hand")
    end = next(n for n, line in enumerate(lines) if n > begin and line.startswith("## "))
    text = "\n".join(block.text for block in blocks(page) if begin < block.line < end)
    namespace, name = release.split("/")
    of_page = {"--stack prod": "", "kata-system": namespace, "name=kata-deploy": f"name={name}"}
    for theirs, ours in of_page.items():
        assert theirs in text
        text = text.replace(theirs, ours)
    # Not `ps`, which looks at all of this computer, and not the `up`, which the caller begins.
    skipped = ("ps ", "pulumi up ")
    commands = [shlex.split(line) for line in text.splitlines() if not line.startswith(skipped)]
    assert {"cancel", "refresh", "delete"} <= {command[1] for command in commands}
    for program, *arguments in commands:
        if program == "pulumi":
            done = dev.engine(*arguments)
        else:
            words = [str(kubectl()), *arguments, "--kubeconfig", str(dev.lab / "kubeconfig")]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{program} {arguments}: {done.stdout}{done.stderr}"
