"""Judges all_reduce_perf of nccl-tests: nothing wrong, and fast enough at the largest size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuclusters.proof.checks import Check, Level, Outcome

_BOUNDS = re.compile(r"^# Out of bounds values\s*:\s*(\d+)\s+(\w+)", re.MULTILINE)
_WHAT = "reduces over all GPUs of the node"
_COLUMNS = 13
"""size, count, type, redop, root, and twice time, algbw, busbw, #wrong."""


@dataclass(frozen=True, slots=True)
class Row:
    """One size: the slower of out-of-place and in-place, and how many results were wrong in both."""

    bytes: int
    bus_gb_per_second: float
    wrong: int | None
    """None: nobody looked."""


def rows(log: str) -> Iterator[Row]:
    """The table; lines that mpirun prefixes are read too."""
    for line in log.splitlines():
        fields = re.sub(r"^\s*\[[^\]]*\]<stdout>:", "", line).split()
        if len(fields) != _COLUMNS or not fields[0].isdecimal():
            continue
        try:
            wrong = [
                None if text == "N/A" else int(float(text)) for text in (fields[8], fields[12])
            ]
            speed = min(float(fields[7]), float(fields[11]))
        except ValueError:
            continue
        known = [number for number in wrong if number is not None]
        yield Row(int(fields[0]), speed, sum(known) if len(known) == len(wrong) else None)


def judge(node: str, log: str, *, floor_gb_per_second: int, exit_code: int) -> Sequence[Check]:
    """One check."""
    table = list(rows(log))
    bounds = _BOUNDS.search(log)
    if not table or bounds is None or exit_code:
        tail = " | ".join(line.strip() for line in log.splitlines()[-3:])[-300:]
        said = f"it did not come to its end, exit code {exit_code}: {tail or '(no output)'}"
        return [Check(Level.L4, node, _WHAT, Outcome.FAILED, said)]
    largest = max(table, key=lambda row: row.bytes)
    wrong = [row for row in table if row.wrong]
    unknown = [row for row in table if row.wrong is None]
    said = (
        f"{largest.bus_gb_per_second:.1f} GB/s of bus bandwidth at {largest.bytes} bytes "
        f"(floor {floor_gb_per_second})"
    )
    if wrong or bounds[2] != "OK":
        outcome, said = Outcome.FAILED, f"wrong results at {len(wrong)} sizes; {said}"
    elif largest.bus_gb_per_second < floor_gb_per_second:
        outcome, said = Outcome.FAILED, f"too slow: {said}"
    elif unknown:
        outcome, said = Outcome.NOT_TRIED, f"results were not compared (#wrong is N/A); {said}"
    else:
        outcome = Outcome.PASSED
    figures = {"bus_gb_per_second": largest.bus_gb_per_second, "bytes": float(largest.bytes)}
    return [Check(Level.L4, node, _WHAT, outcome, said, figures)]
