"""How good the placement is, against the optimum and against doing nothing about it; and how fast.

Generated loads: sizes 1, 2, 4, 8 at 50, 20, 20, 10 %, arrivals and durations exponential. Every number
is the mean over seeds; nothing here passes or fails by time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from statistics import mean

import pytest

from bench import placing, queueing
from gpuclusters.lease.placement import PATIENCE_SECONDS, BoardView, Waiting, place, schedule


@pytest.mark.timeout(900)
def test_refusals_against_the_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for boards, count, offered, seeds in ((1, 40, 0.7, 40), (1, 40, 1.0, 40), (2, 22, 0.9, 40)):
        found = []
        for seed in range(seeds):
            requests = placing.load(seed, count, boards, offered)
            best = placing.fewest_refused(requests, boards)
            rules = (placing.ours, placing.first_fit, placing.random_fit(seed))
            found.append((best, *(placing.run(r, requests, boards).refused for r in rules)))
            assert best <= found[-1][1]
        rows.append((boards, count, offered, *map(mean, zip(*found, strict=True))))
    with capsys.disabled():
        print("\nrefused, of requests    optimum  ours    first fit  random")
        for boards, count, offered, best, ours, first, any_ in rows:
            print(
                f"{boards} boards, {count} requests, load {offered:.1f}"
                f"  {best:6.1%}  {ours:6.1%}  {first:6.1%}  {any_:6.1%}"
            )


@pytest.mark.timeout(900)
def test_refusals_and_fragmentation_of_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for boards, offered in ((4, 0.8), (16, 0.7), (16, 0.9), (16, 1.1)):
        cells = []
        for name in ("ours", "first fit", "random"):
            outcomes = []
            for seed in range(8):
                rule = {"ours": placing.ours, "first fit": placing.first_fit}.get(name)
                requests = placing.load(seed, 1000, boards, offered)
                outcomes.append(placing.run(rule or placing.random_fit(seed), requests, boards))
            cells.append((mean(o.refused for o in outcomes), mean(o.scattered for o in outcomes)))
        rows.append((boards, offered, cells))
    with capsys.disabled():
        print("\nrefused / free GPUs in no free 4    ours            first fit       random")
        for boards, offered, cells in rows:
            shown = "  ".join(f"{refused:5.1%} / {scattered:5.1%}" for refused, scattered in cells)
            print(f"{boards:3d} boards, load {offered:.1f}   {shown}")


@pytest.mark.timeout(900)
def test_waiting_with_and_without_reservations(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for name, patience in (
        ("never", float("inf")),
        ("after 1 h", PATIENCE_SECONDS / 3600),
        ("at once", 0.0),
    ):
        runs = [queueing.run(placing.load(seed, 600, 4, 0.85), 4, patience) for seed in range(6)]
        rows.append(
            (
                name,
                mean(r.mean for r in runs),
                mean(r.mean_of_8 for r in runs),
                max(r.longest_of_8 for r in runs),
                mean(r.used for r in runs),
            )
        )
    with capsys.disabled():
        print("\nreservation    mean wait  of 8 GPUs  longest of 8  GPUs in use   (mean run: 1 h)")
        for name, everyone, large, longest, used in rows:
            print(
                f"{name:12s}   {everyone:7.2f} h  {large:7.2f} h  {longest:10.2f} h  {used:10.1%}"
            )


def test_time_of_a_decision(capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(1)
    boards = [
        BoardView(f"hgx-{n:03}", placing.TABLE.partitions, frozenset(chance.sample(range(1, 9), 4)))
        for n in range(100)
    ]
    queue = [
        Waiting(f"r{n}", f"t{n % 50}", chance.choice([1, 2, 4, 8]), float(n)) for n in range(1000)
    ]
    one = seconds(lambda: place(1, boards))
    everything = seconds(lambda: schedule(queue, {}, boards, now=10_000.0))
    with capsys.disabled():
        print(f"\n100 boards half full: one request {one * 1e3:.2f} ms")
        print(f"the same and a queue of 1,000: one round {everything * 1e3:.0f} ms")


def seconds(act: Callable[[], object]) -> float:
    """The best of some runs."""

    def once() -> float:
        begin = time.perf_counter()
        act()
        return time.perf_counter() - begin

    return min(once() for _ in range(5))
