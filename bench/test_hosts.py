"""What a change on all machines takes, and what a preview of a fleet takes; ratios within one run.

Nothing here passes or fails by time. `make bench` prints the tables. The machines are simulated by one
process of this computer, which also runs what their commands do. So a hundred of them are slower than one
by the work of this computer alone; what is asked here is whether one waits for another. Every command is
held back by a fixed time, as a network and a busy machine would, and then by a longer one: where all machines
wait at the same time, the difference is that of one machine's commands, however many machines there are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench import fleet
from bench.fleet import Project, Used
from bench.replaying import Answer, Machines, recording
from bench.showing import show
from lab.hosts import faults, injecting, journal
from tests.fixtures.hosts import SimulatedHost

pytestmark = [pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
MACHINES = (1, 10, 100)
LATENCY_SECONDS = 0.05
LONGER_SECONDS = 2.0
LAYOUTS = ([1, 2], [3, 4, 5, 6], [1, 2])
FEWEST = 2
"""The example's tenants need two machines."""
FLEETS = (10, 50, 100)


def test_a_change_of_the_layout_takes_as_long_as_one_machine(
    hosts: Callable[..., list[SimulatedHost]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machines = hosts(max(MACHINES))
    late, longer = f"{LATENCY_SECONDS * 1e3:.0f} ms", f"{LONGER_SECONDS:g} s"
    rows = [
        f"{'machines':>9}{late:>9}{'ratio':>7}{longer:>8}{'more':>7}{'if at once':>12}"
        f"{'at once':>9}{'ours, CPU s':>13}"
    ]
    first = 0.0
    for count in MACHINES:
        used = machines[:count]
        boards = Project.of(
            HERE / "boards",
            tmp_path / str(count),
            {"GPU_CLUSTERS_SSH_KEY_FILE": str(used[0].client_key)},
        )
        boards.configure({"boards:hosts": [host.connection for host in used]})
        apply(boards, LAYOUTS[0])
        nothing, _ = apply(boards, LAYOUTS[0])
        short, spent = changed(boards, used, LAYOUTS[1], LATENCY_SECONDS)
        commands = max(len(journal.commands(host.folder, host.name)) for host in used)
        long, _ = changed(boards, used, LAYOUTS[2], LONGER_SECONDS)
        together = at_once(used)
        first = first or short - nothing
        rows.append(
            f"{count:9d}{short - nothing:9.2f}{(short - nothing) / first:7.1f}{long - nothing:8.2f}"
            f"{long - short:7.2f}{commands * (LONGER_SECONDS - LATENCY_SECONDS):12.2f}"
            f"{together:9d}{spent.providers:13.2f}"
        )
    show(capsys, "Another layout on all machines, every command late", rows)


def test_a_change_of_the_layout_where_the_machines_take_no_processor(
    hosts: Callable[..., list[SimulatedHost]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model,) = hosts()
    key = {"GPU_CLUSTERS_SSH_KEY_FILE": str(model.client_key)}
    # What the model says when it gets its first layout, another one, and the first one again.
    parts: list[list[Answer]] = []
    answers: list[Answer] = []
    with recording(model, answers) as connection:
        boards = Project.of(HERE / "boards", tmp_path / "model", key)
        boards.configure({"boards:hosts": [connection]})
        for layout in LAYOUTS:
            answers.clear()
            apply(boards, layout)
            parts.append(list(answers))
    first, other, back = parts
    assert len(other) == len(back) > 0
    rows = [f"{'machines':>9}{'late':>9}{'s':>7}{'ratio':>7}{'CPU s of the providers':>24}"]
    alone: dict[float, float] = {}
    for count in MACHINES:
        machines = Machines(count)
        try:
            boards = Project.of(HERE / "boards", tmp_path / str(count), key)
            boards.configure({"boards:hosts": machines.connections})
            machines.play(first, late=0)
            apply(boards, LAYOUTS[0])
            for late in (LATENCY_SECONDS, LONGER_SECONDS):
                nothing, _ = apply(boards, LAYOUTS[0])
                machines.play(other, late=late)
                seconds, spent = apply(boards, LAYOUTS[1])
                alone.setdefault(late, seconds - nothing)
                rows.append(
                    f"{count:9d}{late:9.2f}{seconds - nothing:7.2f}"
                    f"{(seconds - nothing) / alone[late]:7.2f}{spent.providers:24.2f}"
                )
                machines.play(back, late=0)
                apply(boards, LAYOUTS[0])
        finally:
            machines.close()
    show(capsys, "Another layout on machines that take no processor", rows)


def apply(boards: Project, layout: Sequence[int]) -> tuple[float, Used]:
    """Give all boards a layout: seconds, and what it used of a processor."""
    boards.configure({"boards:partitions": list(layout)})
    seconds, _, used = boards.sampled("up", "--yes", "--skip-preview", "--parallel", "128")
    return seconds, used


def changed(
    boards: Project, used: Sequence[SimulatedHost], layout: Sequence[int], late: float
) -> tuple[float, Used]:
    """The same while every command is late, with new journals."""
    for host in used:
        journal.clear(host.folder, host.name)
        injecting.inject(host.folder, host.name, faults.Slow(seconds=late))
    try:
        return apply(boards, layout)
    finally:
        for host in used:
            injecting.clear(host.folder, host.name)


def at_once(used: Sequence[SimulatedHost]) -> int:
    """On how many machines a command was under way at the same time, at most."""
    changes: list[tuple[float, int]] = []
    for host in used:
        for entry in journal.read(host.folder, host.name, "command"):
            if "flock -w" in entry["command"]:
                continue  # holds the machine for as long as the others work
            changes += [(entry["at"] - entry["seconds"], 1), (entry["at"], -1)]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def test_a_preview_grows_with_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        f"{'machines':>9}{'seconds':>9}{'resources':>11}{'each':>6}"
        f"{'CPU s: engine':>15}{'program':>9}{'providers':>11}{'our code':>10}"
    ]
    measured: dict[int, tuple[float, float]] = {}
    for count in (FEWEST, *FLEETS):
        project = Project.of(fleet.ROOT, tmp_path / str(count))
        chart = fleet.archived(fleet.ROOT / "lab" / "charts" / "kata-deploy", project.folder)
        project.configure(fleet.stack(count, chart))
        project.set_secrets()
        seconds, said, used = project.sampled("preview", "--json")
        urns = [step["urn"] for step in json.loads(said)["steps"] if step["op"] == "create"]
        each = sum(urn.rpartition("::")[2].startswith("hgx-001") for urn in urns)
        total = used.engine + used.program + used.providers
        measured[count] = (seconds, total)
        rows.append(
            f"{count:9d}{seconds:9.2f}{len(urns):11d}{each:6d}{used.engine:15.2f}"
            f"{used.program:9.2f}{used.providers:11.2f}{used.ours_in_program / total:10.1%}"
        )
    for name, which in (("seconds", 0), ("processor time", 1)):
        base, few, many = (measured[n][which] for n in (FEWEST, FLEETS[0], FLEETS[-1]))
        grown = math.log((many - base) / (few - base))
        exponent = grown / math.log((FLEETS[-1] - FEWEST) / (FLEETS[0] - FEWEST))
        rows.append(f"exponent of {name}, beyond those of {FEWEST} machines: {exponent:.2f}")
    show(capsys, "Preview of a fleet", rows)
