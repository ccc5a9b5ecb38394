"""`gpu-clusters drift` in a lab where things are changed by hand (drifts.yaml)."""

from __future__ import annotations

import json
import shlex
from typing import Any

from tests.e2e.conftest import Checkout
from tests.fixtures.tables import beside

Drifted = tuple[str, str, str]
"""Id, where, and a part of what."""
DRIFTS = beside(__file__, "drifts.yaml")


def by_hand(dev: Checkout, kind: str) -> set[Drifted]:
    """Change what the file says; what is to be told of it."""
    for row in DRIFTS[kind]:
        if "at" in row:
            dev.on_host(row["at"], f"sudo -n sh -c {shlex.quote(row['run'])}")
        else:
            dev.kubectl_text(*shlex.split(row["run"]))
    return {tuple(row["told"]) for row in DRIFTS[kind] if "told" in row}


def drift(dev: Checkout, *args: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report; nothing is written by looking."""
    before = _state_of(dev)
    done = dev.run("drift", "--json", *args)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    assert _state_of(dev) == before, "a look wrote to the state"
    return done.returncode, found


def _state_of(dev: Checkout) -> list[bytes]:
    kept = sorted((dev.lab / "state").rglob("*"))
    return [path.read_bytes() for path in kept if path.is_file()]


def told(report: dict[str, Any]) -> list[Drifted]:
    """What a report names."""
    return [(one["id"], one["where"], one["what"]) for one in report["findings"]]


def check(report: dict[str, Any], wanted: set[Drifted], also: set[str]) -> None:
    """Every drift that was made is named, and nothing is that was not made or follows from it."""
    found = told(report)
    missing = [
        (id_, where, what)
        for id_, where, what in sorted(wanted)
        if not any(id_ == i and where == w and what in t for i, w, t in found)
    ]
    assert not missing, json.dumps(report, indent=1)
    made = {(id_, where) for id_, where, _ in wanted}
    spare = [one for one in found if one[:2] not in made and one[0] not in also]
    assert not spare, json.dumps(report, indent=1)
    for one in report["findings"]:
        assert one["do"], one
        assert one["severity"] in ("critical", "warning", "notice")
