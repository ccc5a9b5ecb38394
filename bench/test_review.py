"""How long a review of a large plan takes, and how much memory: 5,000 resources within 2 s and 200 MB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.showing import show
from tests.review.catalogue import loading

SECONDS, MEGABYTES = 2.0, 200
MEASURE = """
import json, resource, sys, time
from pathlib import Path
start = time.process_time()
from gpuclusters.cli.review import Options, run
code = run([sys.argv[1]], [], Options(output=Path(sys.argv[2])))
taken = time.process_time() - start
# The peak of getrusage begins with that of the process which started this one.
peak = next(l.split()[1] for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM"))
print(json.dumps({"code": code, "seconds": taken, "megabytes": int(peak) / 1024}))
"""


def large(resources: int, changed: float) -> dict[str, Any]:
    # The recorded plan over and over, each time in another stack's names.
    steps: list[dict[str, Any]] = []
    base = loading.document("relayout")
    root, rest = base["steps"][:1], base["steps"][1:]
    copy = 0
    while len(steps) < resources - 1:
        text = json.dumps(rest).replace("hgx-", f"h{copy}x-").replace("::", f"::c{copy}-", 0)
        for step in json.loads(text):
            step["urn"] += f"-{copy}"
            for side in ("oldState", "newState"):
                if side in step:
                    step[side]["urn"] = step["urn"]
                    if not step[side].get("parent", "").endswith("-prod"):
                        step[side]["parent"] = step[side].get("parent", "") + f"-{copy}"
            if (
                step["op"] == "same"
                and len(steps) < changed * resources
                and step["newState"].get("inputs")
            ):
                step["op"] = "update"
                step["newState"]["inputs"] = {**step["newState"]["inputs"], "revision": copy}
            steps.append(step)
        copy += 1
    document = {**base, "steps": [*root, *steps[: resources - 1]]}
    document["changeSummary"] = {"same": sum(s["op"] == "same" for s in document["steps"])}
    return document


@pytest.mark.parametrize(("resources", "changed"), [(5_000, 0.02), (5_000, 1.0), (10_000, 1.0)])
def test_a_large_plan(
    resources: int, changed: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(large(resources, changed)))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(plan), str(tmp_path / "out")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    show(
        capsys,
        f"review of {resources:,} resources, {plan.stat().st_size >> 20} MiB of JSON",
        [f"  {found['seconds']:.2f} s of CPU, {found['megabytes']:.0f} MB"],
    )
    assert found["code"] == 0
    if resources == 5_000:
        assert found["megabytes"] <= MEGABYTES
