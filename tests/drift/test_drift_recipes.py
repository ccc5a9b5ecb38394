"""The recipes of the schedule: syntax, what they may do, and their shell, run against a stand-in forge."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gpuclusters.cli.forge import Forge
from gpuclusters.drift.report import Finding, Unseen, document
from tests.drift.drifting import report
from tests.review.forge_standin import TOKEN, Standin, forge
from tests.review.recipes import assert_harmless, recipe, runner, scripts, shell

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
    assert_harmless("drift-github-actions.yml")


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


OURS = """\
import json, pathlib
given = pathlib.Path({given!r})
if "--stack" in sys.argv:
    if sys.argv[1:] != ["drift", "--stack", "prod", "--json"]:
        sys.exit(9)
    text = (given / "prod.json").read_text()
    sys.stdout.write(text)
    sys.exit(json.loads(text)["exit_code"] if text else 2)
import typer
from gpuclusters.cli import drift
from gpuclusters.cli.errors import RunError, UsageError
app = typer.Typer()
app.command("drift")(drift.command)
app.command("other")(lambda: None)
try:
    app()
except (UsageError, RunError) as error:
    sys.stderr.write(str(error))
    sys.exit(error.exit_code)
"""
"""The command, whose look is given."""


def machine(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    gh = f"mkdir -p drift/drift-prod\ncp {tmp_path}/given/*.json drift/drift-prod\n"
    return runner(tmp_path, OURS.format(given=str(tmp_path / "given")), gh=gh)


def give(tmp_path: Path, found: Any) -> None:
    text = json.dumps(document(found)) if found is not None else ""
    (tmp_path / "given/prod.json").write_text(text)


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
        env |= standin.environment(Forge.GITHUB) | {"GH_TOKEN": TOKEN, "GITHUB_RUN_ID": "1"}
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
