"""The recipes for pipelines: syntax, what they may do, and their shell, run against a stand-in forge."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpuclusters.cli.forge import Forge
from gpuclusters.drift.report import Finding, Report, Unseen
from gpuclusters.drift.report import document as written
from tests.drift.drifting import report
from tests.engine.warmkit import warm_python
from tests.review.catalogue import loading
from tests.review.forge_standin import TOKEN, forge

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = Path(__file__).with_name("schemas")
"""Of GitHub Actions workflows (SchemaStore, Apache-2.0) and of GitLab CI (GitLab, MIT Expat), as
`check-jsonschema` 0.39.0 brings them, without their descriptions."""
RECIPES = ROOT / "docs/recipes"
DRIFTED = report(
    "prod", [Finding("host.unit-failed", "hgx-01", "a.service", "not failed", "failed")]
)
BLIND = report("prod", [], [Unseen("machine hgx-02", "no SSH connection")])
CLEAN = report("prod", [])
CLOUD = {
    "PULUMI_BACKEND_URL": "gs://states",
    "CLOUD_TOKEN": "made.up.token",
    "WORKLOAD_IDENTITY_PROVIDER": "projects/1/pool",
    "PREVIEW_SERVICE_ACCOUNT": "preview@example.com",
}
OURS = """\
#!{python}
import json, pathlib, sys
sys.path.insert(0, {root!r})
if "--stack" in sys.argv:
    if sys.argv[1:] != ["drift", "--stack", "prod", "--json"]:
        sys.exit(9)
    text = pathlib.Path({given!r}).read_text()
    sys.stdout.write(text)
    sys.exit(json.loads(text)["exit_code"] if text else 2)
import typer
from gpuclusters.cli import drift, review
from gpuclusters.cli.errors import RunError, UsageError
app = typer.Typer()
app.command("drift")(drift.command)
app.command("review")(review.command)
try:
    app()
except (UsageError, RunError) as error:
    sys.stderr.write(str(error))
    sys.exit(error.exit_code)
"""
"""Our command, whose look is given."""
PULUMI = """\
#!/bin/sh
[ "$1 $2 $3" = "preview --stack prod" ] || exit 9
case "$*" in *--json*--show-sames*) cat {given} ;; *) exit 9 ;; esac
"""
GH = """\
#!/bin/sh
for folder in plans/plan-prod drift/drift-prod; do mkdir -p $folder && cp {given} $folder; done
"""


class _Loader(yaml.SafeLoader):
    """YAML 1.2 of pipelines: `on` is a word."""


_Loader.yaml_implicit_resolvers = {
    key: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:bool"]
    for key, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


def recipe(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((RECIPES / name).read_text(), _Loader)
    return found


def scripts(name: str, job: str) -> dict[str, str]:
    """The shell of a job's steps, by name."""
    steps = recipe(name)["jobs"][job]["steps"]
    return {step["name"]: step["run"] for step in steps if "run" in step}


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("github-actions.yml", "github-workflows"),
        ("gitlab-ci.yml", "gitlab-ci"),
        ("drift-github-actions.yml", "github-workflows"),
        ("drift-gitlab-ci.yml", "gitlab-ci"),
    ],
)
def test_a_recipe_is_valid_by_the_schema_of_its_forge(name: str, schema: str) -> None:
    document = json.loads((SCHEMAS / f"{schema}.json").read_text())
    validator = jsonschema.validators.validator_for(document)(document)
    assert [error.message for error in validator.iter_errors(recipe(name))] == []
    wrong = recipe(name)
    wrong["jobs" if "jobs" in wrong else "review"] = {"x": {"runs-on": 3}}
    assert list(validator.iter_errors(wrong)), "the schema refuses nothing"


@pytest.mark.parametrize(
    ("name", "on", "looks", "writes", "right"),
    [
        ("github-actions.yml", {"pull_request"}, "stacks", "comment", "pull-requests"),
        ("drift-github-actions.yml", {"schedule", "workflow_dispatch"}, "look", "issue", "issues"),
    ],
)
def test_a_workflow_has_least_rights_pinned_actions_and_secrets_away_from_what_it_writes(
    name: str, on: set[str], looks: str, writes: str, right: str
) -> None:
    workflow = recipe(name)
    assert set(workflow["on"]) == on
    assert workflow["permissions"] == {}
    jobs = workflow["jobs"]
    assert jobs[looks]["permissions"] == {"contents": "read", "id-token": "write"}
    assert jobs[writes]["permissions"] == {"contents": "read", right: "write"}
    assert jobs[writes]["needs"] == looks
    # Secrets of the cloud and the token that writes are never in one job.
    assert "secrets." not in json.dumps(jobs[writes])
    assert "GITHUB_TOKEN" not in json.dumps(jobs[looks])
    used = re.findall(r"uses: (\S+)(.*)", (RECIPES / name).read_text())
    assert used
    for action, rest in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", rest), rest
    for step in (step for job in jobs.values() for step in job["steps"]):
        # An expression in a script is code that whoever names a branch can write.
        assert "${{" not in step.get("run", "")
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


def test_nothing_is_previewed_for_forks_and_no_stack_twice_at_once() -> None:
    workflow, pipeline = recipe("github-actions.yml"), recipe("gitlab-ci.yml")
    assert workflow["on"] == {"pull_request": None}
    stacks = workflow["jobs"]["stacks"]
    assert "head.repo.full_name == github.repository" in stacks["if"]
    assert "matrix.stack" in stacks["concurrency"]["group"]
    assert pipeline["preview"]["resource_group"] == "review-$STACK"


@pytest.mark.parametrize(
    ("name", "base", "rule", "looks", "writes"),
    [
        (
            *("gitlab-ci.yml", ".fleet"),
            *("$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID", "preview", "review"),
        ),
        (
            *(
                "drift-gitlab-ci.yml",
                ".drift",
                '$CI_PIPELINE_SOURCE == "schedule" && $DRIFT == "1"',
            ),
            *("drift-look", "drift-issue"),
        ),
    ],
)
def test_a_pipeline_of_gitlab_runs_for_its_own_project_and_a_job_has_the_cloud_or_the_token(
    name: str, base: str, rule: str, looks: str, writes: str
) -> None:
    jobs = recipe(name)
    (found,) = jobs[base]["rules"]
    assert rule in found["if"]
    assert re.search(r":\d+\.\d+\.\d+$", jobs[base]["image"]["name"])
    assert "id_tokens" in jobs[looks]
    assert "id_tokens" not in jobs[writes]
    assert "DRIFT_TOKEN" not in json.dumps(jobs[looks])


@dataclass
class Runner:
    """A folder as a runner of a forge has it, and what it gives to every job."""

    work: Path
    given: Path
    """What our look or the engine's preview prints."""
    env: dict[str, str]

    def __call__(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.work, env=self.env | env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert TOKEN not in done.stdout + done.stderr
        return done

    def finds(self, found: Report) -> None:
        self.given.write_text(json.dumps(written(found)))

    def credentials(self) -> dict[str, Any]:
        """Those of the cloud, which a job of GitLab's wrote."""
        assert (self.work / ".cloud-token").stat().st_mode & 0o077 == 0
        found: dict[str, Any] = json.loads((self.work / ".cloud.json").read_text())
        return found


@pytest.fixture(scope="module")
def python() -> Iterator[Path]:
    """Jobs call our command again and again."""
    with warm_python("gpuclusters.cli.drift", "gpuclusters.cli.review") as made:
        yield made


@pytest.fixture
def runner(tmp_path: Path, python: Path) -> Runner:
    work, given = tmp_path / "work", tmp_path / "prod.json"
    ours = OURS.format(python=python, root=str(ROOT), given=str(given))
    programs = {"work/.venv/bin/gpu-clusters": ours, "bin/pulumi": PULUMI, "bin/gh": GH}
    for name, text in programs.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("{given}", str(given)))
        file.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(tmp_path), "STACK": "prod", "CI_PROJECT_DIR": str(work)}
    return Runner(work, given, env)


def check_comment(comment: dict[str, Any], runner: Runner) -> None:
    assert comment["body"].startswith("## 🔴 dangerous: stack `prod`")
    assert "tenant globex goes" in comment["body"]
    assert (runner.work / "review/review.html").is_file()


def test_the_shell_of_the_workflow_comments_and_stops_at_a_gate(runner: Runner) -> None:
    runner.given.write_text(loading.text("tenant-removed"))
    assert runner(scripts("github-actions.yml", "stacks")["preview"]).returncode == 0
    assert (runner.work / "plans/prod.json").read_text() == runner.given.read_text()
    shutil.rmtree(runner.work / "plans")
    comment = scripts("github-actions.yml", "comment")
    with forge() as standin:
        runner.env |= standin.environment(Forge.GITHUB)
        runner.env |= {"GH_TOKEN": TOKEN, "GITHUB_RUN_ID": "1", "ARTIFACT": "of run 1"}
        assert runner(comment["plans"]).returncode == 0
        done = runner(comment["review"], FAIL_ON="delete,policy")
        assert done.returncode == 5, done.stderr
        check_comment(*standin.comments, runner)
        assert standin.changes == ["POST /repos/acme/fleet/issues/7/comments"]
        # A preview that failed is shown as such.
        failed = {"diagnostics": [{"severity": "error", "message": "no quota"}]}
        runner.given.write_text(json.dumps(loading.document("nothing") | failed))
        assert runner(comment["plans"]).returncode == 0
        assert runner(comment["review"], FAIL_ON="").returncode == 1
        assert "no quota" in standin.comments[0]["body"]


def test_the_shell_of_the_pipeline_of_gitlab_comments(runner: Runner) -> None:
    runner.given.write_text(loading.text("tenant-removed"))
    pipeline = recipe("gitlab-ci.yml")
    done = runner("\n".join(pipeline["preview"]["script"]), **CLOUD)
    assert done.returncode == 0, done.stderr
    assert runner.credentials()["audience"] == "//iam.googleapis.com/projects/1/pool"
    with forge() as standin:
        standin.app = False
        runner.env |= standin.environment(Forge.GITLAB)
        script = "\n".join(pipeline["review"]["script"])
        done = runner(script, CI_JOB_URL="https://gitlab.example/1", REVIEW_FAIL_ON="")
        assert done.returncode == 0, done.stderr
        check_comment(*standin.comments, runner)


def check_issue(issue: dict[str, Any]) -> None:
    assert issue["title"] == "Drift: stack prod"
    assert "a.service" in issue["body"]
    assert issue["body"].rstrip().endswith("<!-- gpu-clusters drift prod -->")


def test_the_shell_of_the_workflow_keeps_one_issue_and_is_red_while_something_drifted(
    runner: Runner,
) -> None:
    look = scripts("drift-github-actions.yml", "look")["look"]
    issue = scripts("drift-github-actions.yml", "issue")
    with forge() as standin:
        runner.env |= standin.environment(Forge.GITHUB)
        runner.env |= {"GH_TOKEN": TOKEN, "GITHUB_RUN_ID": "1"}
        for found, code, state in ((DRIFTED, 1, "open"), (BLIND, 2, "open"), (CLEAN, 0, "closed")):
            runner.finds(found)
            assert runner(look).returncode == 0
            assert runner(issue["reports"]).returncode == 0
            done = runner(issue["issue"])
            assert done.returncode == code, done.stderr
            assert [one["state"] for one in standin.issues] == [state]
            if found is DRIFTED:
                check_issue(*standin.issues)
        assert [call.split()[0] for call in standin.changes] == ["POST", "PATCH", "PATCH"]


def test_a_look_that_printed_no_report_fails_its_job(runner: Runner) -> None:
    runner.given.write_text("")
    pipeline = recipe("drift-gitlab-ci.yml")
    assert runner(scripts("drift-github-actions.yml", "look")["look"]).returncode != 0
    assert runner("\n".join(pipeline["drift-look"]["script"][1:])).returncode != 0


def test_the_shell_of_the_pipeline_of_gitlab_keeps_one_issue(runner: Runner) -> None:
    pipeline = recipe("drift-gitlab-ci.yml")
    runner.finds(DRIFTED)
    done = runner("\n".join(pipeline["drift-look"]["script"]), **CLOUD)
    assert done.returncode == 0, done.stderr
    assert runner.credentials()
    with forge() as standin:
        standin.app = False
        runner.env |= {"DRIFT_TOKEN": TOKEN, "CI_PROJECT_ID": "42", "CI_API_V4_URL": standin.url}
        done = runner("\n".join(pipeline["drift-issue"]["script"]))
        assert done.returncode == 1, done.stderr
        check_issue(*standin.issues)
        assert [call.split()[0] for call in standin.changes] == ["POST"]
