"""The recipes of the schedule: syntax, what they may do, and their shell, run against a stand-in forge."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpuclusters.drift.report import Finding, Unseen, document
from tests.drift.drifting import report
from tests.review.forge_standin import TOKEN, Standin, forge
from tests.review.recipes import RECIPES, recipe

ROOT = Path(__file__).resolve().parents[2]


GITHUB = recipe("drift-github-actions.yml")
GITLAB = recipe("drift-gitlab-ci.yml")


def test_the_workflow_has_least_rights_pinned_actions_and_secrets_away_from_the_issue() -> None:
    assert set(GITHUB["on"]) == {"schedule", "workflow_dispatch"}
    assert GITHUB["permissions"] == {}
    jobs = GITHUB["jobs"]
    assert jobs["look"]["permissions"] == {"contents": "read", "id-token": "write"}
    assert jobs["issue"]["permissions"] == {"contents": "read", "issues": "write"}
    assert "secrets." not in json.dumps(jobs["issue"])
    assert "GITHUB_TOKEN" not in json.dumps(jobs["look"])
    for action, rest in re.findall(
        r"uses: (\S+)(.*)", (RECIPES / "drift-github-actions.yml").read_text()
    ):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", rest), rest
    for job in jobs.values():
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_the_pipeline_of_gitlab_runs_on_its_schedule_only() -> None:
    (rule,) = GITLAB[".drift"]["rules"]
    assert rule["if"] == '$CI_PIPELINE_SOURCE == "schedule" && $DRIFT == "1"'
    assert re.search(r":\d+\.\d+\.\d+$", GITLAB[".drift"]["image"]["name"])
    assert "id_tokens" not in GITLAB["drift-issue"]
    assert "DRIFT_TOKEN" not in json.dumps(GITLAB["drift-look"])


DRIFTED = report(
    "prod", [Finding("host.unit-failed", "hgx-01", "a.service", "not failed", "failed")]
)
BLIND = report("prod", [], [Unseen("machine hgx-02", "no SSH connection")])
CLEAN = report("prod", [])


def machine(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder as a runner has it: our command, whose look is given, and a double of `gh`."""
    bin_, work = tmp_path / "bin", tmp_path / "work"
    (work / ".venv/bin").mkdir(parents=True)
    (tmp_path / "given").mkdir()
    bin_.mkdir()
    ours = work / ".venv/bin/gpu-clusters"
    ours.write_text(
        f"#!{sys.executable}\nimport json, pathlib, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"given = pathlib.Path({str(tmp_path / 'given')!r})\n"
        "if '--stack' in sys.argv:\n"
        "    if sys.argv[1:] != ['drift', '--stack', 'prod', '--json']: sys.exit(9)\n"
        "    text = (given / 'prod.json').read_text(); sys.stdout.write(text)\n"
        "    sys.exit(json.loads(text)['exit_code'] if text else 2)\n"
        "import typer\nfrom gpuclusters.cli import drift\n"
        "from gpuclusters.cli.errors import RunError, UsageError\n"
        'app = typer.Typer()\napp.command("drift")(drift.command)\napp.command("other")(lambda: None)\n'
        "try:\n    app()\nexcept (UsageError, RunError) as error:\n"
        "    sys.stderr.write(str(error))\n    sys.exit(error.exit_code)\n"
    )
    gh = bin_ / "gh"
    gh.write_text(
        f"#!/bin/sh\nmkdir -p drift/drift-prod\ncp {tmp_path}/given/*.json drift/drift-prod\n"
    )
    for file in (ours, gh):
        file.chmod(0o755)
    env = {"PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(tmp_path), "STACK": "prod"}
    return work, env


def shell(script: str, work: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=work, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip


def give(tmp_path: Path, found: Any) -> None:
    text = json.dumps(document(found)) if found is not None else ""
    (tmp_path / "given/prod.json").write_text(text)


def scripts(job: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["run"] for step in job["steps"] if "run" in step}


def check(standin: Standin) -> None:
    (issue,) = standin.issues
    assert issue["title"] == "Drift: stack prod"
    assert "a.service" in issue["body"]
    assert issue["body"].rstrip().endswith("<!-- gpu-clusters drift prod -->")


def test_the_shell_of_the_workflow_keeps_one_issue_and_is_red_while_something_drifted(
    tmp_path: Path,
) -> None:
    look, issue = scripts(GITHUB["jobs"]["look"])["look"], scripts(GITHUB["jobs"]["issue"])
    work, env = machine(tmp_path)
    with forge() as standin:
        env |= {
            "GITHUB_TOKEN": TOKEN, "GH_TOKEN": TOKEN, "GITHUB_REPOSITORY": "acme/fleet",
            "GITHUB_API_URL": standin.url, "GITHUB_RUN_ID": "1",
        }  # fmt: skip
        for found, code, state in ((DRIFTED, 1, "open"), (BLIND, 2, "open"), (CLEAN, 0, "closed")):
            give(tmp_path, found)
            assert shell(look, work, env).returncode == 0
            assert shell(issue["reports"], work, env).returncode == 0
            done = shell(issue["issue"], work, env)
            assert done.returncode == code, done.stderr
            assert TOKEN not in done.stdout + done.stderr
            assert [one["state"] for one in standin.issues] == [state]
            if found is DRIFTED:
                check(standin)
        assert [call.split()[0] for call in standin.changes] == ["POST", "PATCH", "PATCH"]


def test_a_look_that_printed_no_report_fails_its_job(tmp_path: Path) -> None:
    work, env = machine(tmp_path)
    give(tmp_path, None)
    assert shell(scripts(GITHUB["jobs"]["look"])["look"], work, env).returncode != 0
    assert shell("\n".join(GITLAB["drift-look"]["script"][1:]), work, env).returncode != 0


def test_the_shell_of_the_pipeline_of_gitlab_keeps_one_issue(tmp_path: Path) -> None:
    work, env = machine(tmp_path)
    env |= {
        "PULUMI_BACKEND_URL": "gs://states", "CLOUD_TOKEN": "made.up.token", "CI_PROJECT_DIR": str(work),
        "WORKLOAD_IDENTITY_PROVIDER": "projects/1/pool", "PREVIEW_SERVICE_ACCOUNT": "preview@example.com",
    }  # fmt: skip
    give(tmp_path, DRIFTED)
    done = shell("\n".join(GITLAB["drift-look"]["script"]), work, env)
    assert done.returncode == 0, done.stderr
    assert (work / ".cloud-token").stat().st_mode & 0o077 == 0
    with forge() as standin:
        standin.app = False
        env |= {"DRIFT_TOKEN": TOKEN, "CI_PROJECT_ID": "42", "CI_API_V4_URL": standin.url}
        for _ in range(2):
            done = shell("\n".join(GITLAB["drift-issue"]["script"]), work, env)
            assert done.returncode == 1, done.stderr
        check(standin)
        assert [call.split()[0] for call in standin.changes] == ["POST"]
