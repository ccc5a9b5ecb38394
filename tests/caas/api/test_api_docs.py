"""The page about the API is true: its commands are run, and answered as it says.

After a change of the API, `RECORD_DOCS=1 pytest` on this file writes the new answers into it.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from caas.api.problems import TYPES, Problem
from gpuclusters.tenancy.objects import POD
from tests.caas.api.apikit import GPU, PATIENCE_SECONDS, FakeCluster, listening, tenancy
from tests.caas.api.test_api_volumes import claim

PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"
_STEP = re.compile(
    r"<!-- then: (?P<then>[^>]+) -->|"
    r"```bash\n(?P<command>.*?)```\n\n```(?P<form>json|text)\n(?P<answer>.*?)```",
    re.S,
)
# What differs from run to run, and how it is shown.
_SHOWN = (
    (re.compile(r"c-[0-9a-f]{20}"), "c-4f0a1b2c3d4e5f607182"),
    (re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+Z"), "2026-11-21T12:00:00Z"),
    (re.compile(r'"requestId": ?"[0-9a-f]{16}"'), '"requestId": "5f0c1d2e3a4b5968"'),
)


class Shown(FakeCluster):
    """The tenant of the page has a volume, and a limit range that says what a container gets."""

    def __init__(self) -> None:
        super().__init__()
        hard = {"pods": "10", "requests.memory": "1Ti", f"requests.{GPU}": "4"}
        quota = {"name": "tenant", "hard": hard}
        self.put("tenancies", tenancy("acme", sizes=[1, 2], quota=quota))
        where = {"name": "tenant", "namespace": "tenant-acme"}
        counted = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        self.put("resourcequotas", {"metadata": where, "status": counted})
        self.put("persistentvolumeclaims", claim("acme", "data"))
        self.server.before_storing(self._limit)

    def _limit(self, kind: Any, before: Any, body: dict[str, Any]) -> None:
        if kind == POD and not before:
            for amounts in body["spec"]["containers"][0]["resources"].values():
                amounts |= {"cpu": "1", "memory": "1Gi"}


@pytest.mark.skipif(not shutil.which("curl"), reason="the page shows curl, which is not here")
def test_every_command_of_the_page_is_answered_as_it_says() -> None:
    page, cluster = PAGE.read_text(), Shown()
    serving = listening(cluster, hosts={"hgx-01": {}})
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving) as (api, port),
    ):
        environment = {"API": f"http://127.0.0.1:{port}", "TOKEN": api.issuer.token("acme")}

        def happen(what: str) -> None:
            """What the cluster does between the commands."""
            container = environment["CONTAINER"]
            if what == "let it go":
                (pod,) = (pod for pod in cluster.pods if pod["metadata"]["name"] == container)
                portal.call(cluster.event, pod, 0, "Scheduled", f"{container} to hgx-01")
                cluster.logs = [b"epoch 2: loss 0.31\n", b"epoch 3: loss 0.27\n"]
                since = {"running": {"startedAt": "2026-11-21T12:00:00Z"}}
                portal.call(api.become, container, "Running", since)
            else:
                assert what == "it has ended"
                portal.call(cluster.remove, "pods", container, "tenant-acme")
                portal.call(api.settle)

        def told(step: re.Match[str]) -> str:
            if step["then"]:
                happen(step["then"].strip())
                return step[0]
            answer = _shell(step["command"], environment)
            if step["form"] == "json":
                said = json.loads(answer)
                if "id" in said:
                    environment.setdefault("CONTAINER", said["id"])
                answer = json.dumps(said, indent=2, ensure_ascii=False)
            for pattern, constant in _SHOWN:
                answer = pattern.sub(constant, answer)
            return f"```bash\n{step['command']}```\n\n```{step['form']}\n{answer.rstrip()}\n```"

        recorded = _STEP.sub(told, page)
    assert cluster.calls["create"] >= 2, "the page makes containers"
    if os.environ.get("RECORD_DOCS"):
        PAGE.write_text(recorded)
    assert PAGE.read_text() == recorded


def _shell(command: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_the_page_names_every_problem_and_no_other() -> None:
    table = PAGE.read_text().split(f"`type`, after `{TYPES}`")[1].split("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if re.match(r"\| \d{3}", line)]
    told = {(name, int(s)) for row in rows for name in re.findall(r"`([a-z-]+)`", row[2])
            for s in re.findall(r"\d{3}", row[1])}  # fmt: skip
    real = {(problem.value[0], problem.status) for problem in Problem}
    assert {name for name, _ in told} == {name for name, _ in real}
    assert real <= told
