"""`gpu-clusters drift` in a lab: what is changed by hand there, and what is told of it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from lab import tools
from tests.e2e.conftest import Checkout

Drifted = tuple[str, str, str]
"""Id, where, and a part of what."""


def drift(dev: Checkout, *args: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    done = dev.run("drift", "--json", *args)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    return done.returncode, found


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


def kubectl(dev: Checkout, *args: str) -> None:
    """Change something in the cluster by hand."""
    command = [str(tools.resolve("kubectl")), "--kubeconfig", str(dev.lab / "kubeconfig"), *args]
    done = subprocess.run(command, env=dev.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def state_of(dev: Checkout) -> bytes:
    """The files of the state."""
    return b"".join(
        path.read_bytes() for path in sorted((dev.lab / "state").rglob("*")) if path.is_file()
    )
